import assert from "node:assert/strict";
import { test } from "node:test";
import { fileName } from "../../../../src/regard/show/page/js/shell/save-file.js";

test("a file is named by title, view and head, and by nothing that a file system refuses", () => {
  assert.equal(fileName(["tiny", "head", "4.3"], "svg"), "tiny-head-4.3.svg");
  assert.equal(fileName(["../etc/pass wd: “Größe”", "heads", ""], "png"), "etc-pass-wd-Größe-heads.png");
  assert.equal(fileName(["///", "", ""], "svg"), "regard.svg");
  assert.ok(fileName(["a".repeat(300)], "svg").length < 70);
});
