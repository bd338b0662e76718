import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelBlocks } from "../../../../src/regard/show/page/js/shell/notebook-widget.js";

const view = (...bytes) => [new DataView(Uint8Array.from([99, ...bytes]).buffer, 1)];

test("a block that two ask for is sent once and reaches both", async () => {
  const sent = [];
  const blocks = kernelBlocks((content) => sent.push(content));
  const both = [blocks.get("strongest.0"), blocks.get("strongest.0")];
  blocks.receive({ key: "strongest.0" }, view(3, 5));
  assert.deepEqual(
    (await Promise.all(both)).map((bytes) => [...bytes]),
    [
      [3, 5],
      [3, 5],
    ],
  );
  assert.deepEqual(sent, [{ key: "strongest.0" }]);
});

test("answers come in any order, and those of other views are passed over", async () => {
  const blocks = kernelBlocks(() => {});
  const [a, b] = [blocks.get("a"), blocks.get("b")];
  blocks.receive({ key: "of another view" }, view(1));
  blocks.receive({ key: "b" }, view(2));
  blocks.receive({ key: "a" }, view(7));
  assert.deepEqual([...(await a), ...(await b)], [7, 2]);
});

test("an error of the kernel is an error here, and the block can be asked for again", async () => {
  const blocks = kernelBlocks(() => {});
  const first = blocks.get("a");
  blocks.receive({ key: "a", error: "a is not in this report." }, []);
  await assert.rejects(first, /a is not in this report\./);
  const second = blocks.get("a");
  blocks.receive({ key: "a" }, view(4));
  assert.deepEqual([...(await second)], [4]);
});

test("a kernel that is busy is waited for, and the page says so until the last answer is here", async () => {
  const said = [];
  const blocks = kernelBlocks(
    () => {},
    (isSlow) => said.push(isSlow),
    5,
  );
  const both = [blocks.get("a"), blocks.get("b")];
  await new Promise((done) => setTimeout(done, 30));
  assert.deepEqual(said, [true, true]);
  blocks.receive({ key: "a" }, view(1));
  await both[0];
  assert.deepEqual(said, [true, true]);
  blocks.receive({ key: "b" }, view(2));
  assert.deepEqual([...(await both[1])], [2]);
  assert.deepEqual(said, [true, true, false]);
});

test("a kernel that cannot be reached is an error too", async () => {
  const gone = () => {
    throw new Error("no comm");
  };
  await assert.rejects(kernelBlocks(gone).get("a"), /no comm/);
});
