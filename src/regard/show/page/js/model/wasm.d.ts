// esbuild puts a WebAssembly module into the bundle, as bytes.
declare module "*.wasm" {
  const bytes: Uint8Array<ArrayBuffer>;
  export default bytes;
}
