// The folders of the page's JavaScript: none too wide, and imports point one way, from the shell down to the data.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const SOURCE = new URL("../../../../src/regard/show/page/js/", import.meta.url);
const FOLDERS = ["model", "data", "words", "draw", "views", "atlas", "live", "shell"]; // a folder imports only from those before it
const WIDEST = 20;

test("folders are those of the plan, and none has too many files", () => {
  assert.deepEqual(readdirSync(SOURCE).sort(), [...FOLDERS].sort());
  for (const folder of FOLDERS) assert.ok(readdirSync(new URL(folder, SOURCE)).length <= WIDEST, folder);
});

test("imports point one way", () => {
  const wrong = FOLDERS.flatMap((folder, floor) =>
    readdirSync(new URL(folder, SOURCE)).flatMap((name) => {
      const text = readFileSync(new URL(`${folder}/${name}`, SOURCE), "utf8");
      const used = [...text.matchAll(/^import [^;]*? from "\.\.\/(\w+)\//gms)].map((match) => match[1]);
      return used.filter((other) => FOLDERS.indexOf(other) > floor).map((other) => `${folder}/${name}: ${other}`);
    }),
  );
  assert.deepEqual(wrong, []);
});

test("no line is too long", () => {
  const long = FOLDERS.flatMap((folder) =>
    readdirSync(new URL(folder, SOURCE))
      .filter((name) => !name.endsWith(".wasm"))
      .flatMap((name) =>
        readFileSync(new URL(`${folder}/${name}`, SOURCE), "utf8")
          .split("\n")
          .flatMap((line, i) => (line.length > 120 ? [`${folder}/${name}:${i + 1}`] : [])),
      ),
  );
  assert.deepEqual(long, []);
});
