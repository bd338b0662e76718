// linear.js for WebAssembly with SIMD, written in AssemblyScript and built by `npm run build`: four products at a time.
//
// Offsets and strides count floats; 4 bytes each. bias is −1 for none.

// @ts-nocheck: a language of its own, whose types tsc does not know
// biome-ignore-all lint: the same

@inline
function at(offset: i32): usize {
  return <usize>offset << 2;
}

@inline
function total(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

@inline
function added(bias: i32, o: i32): f32 {
  return bias < 0 ? 0 : load<f32>(at(bias + o));
}

/** Products of the numbers that are left after the last whole vector. */
@inline
function rest(x: i32, w: i32, from: i32, I: i32): f32 {
  let sum: f32 = 0;
  for (let i = from; i < I; i++) sum += load<f32>(at(x + i)) * load<f32>(at(w + i));
  return sum;
}

export function linear(
  x: i32, xStride: i32, w: i32, wStride: i32, bias: i32, out: i32, outStride: i32, T: i32, I: i32, O: i32,
): void {
  const whole = I & ~3;
  let t = 0;
  for (; t + 4 <= T; t += 4) {
    const x0 = x + t * xStride, x1 = x0 + xStride, x2 = x1 + xStride, x3 = x2 + xStride;
    const y = out + t * outStride;
    let o = 0;
    for (; o + 2 <= O; o += 2) {
      const u = w + o * wStride, v = u + wStride;
      let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
      for (let i = 0; i < whole; i += 4) {
        const p = v128.load(at(u + i)), q = v128.load(at(v + i));
        let one = v128.load(at(x0 + i));
        a0 = f32x4.add(a0, f32x4.mul(one, p));
        b0 = f32x4.add(b0, f32x4.mul(one, q));
        one = v128.load(at(x1 + i));
        a1 = f32x4.add(a1, f32x4.mul(one, p));
        b1 = f32x4.add(b1, f32x4.mul(one, q));
        one = v128.load(at(x2 + i));
        a2 = f32x4.add(a2, f32x4.mul(one, p));
        b2 = f32x4.add(b2, f32x4.mul(one, q));
        one = v128.load(at(x3 + i));
        a3 = f32x4.add(a3, f32x4.mul(one, p));
        b3 = f32x4.add(b3, f32x4.mul(one, q));
      }
      const c = added(bias, o), d = added(bias, o + 1);
      store<f32>(at(y + o), total(a0) + rest(x0, u, whole, I) + c);
      store<f32>(at(y + o + 1), total(b0) + rest(x0, v, whole, I) + d);
      store<f32>(at(y + outStride + o), total(a1) + rest(x1, u, whole, I) + c);
      store<f32>(at(y + outStride + o + 1), total(b1) + rest(x1, v, whole, I) + d);
      store<f32>(at(y + 2 * outStride + o), total(a2) + rest(x2, u, whole, I) + c);
      store<f32>(at(y + 2 * outStride + o + 1), total(b2) + rest(x2, v, whole, I) + d);
      store<f32>(at(y + 3 * outStride + o), total(a3) + rest(x3, u, whole, I) + c);
      store<f32>(at(y + 3 * outStride + o + 1), total(b3) + rest(x3, v, whole, I) + d);
    }
    for (; o < O; o++) {
      const c = added(bias, o);
      for (let r = 0; r < 4; r++) one(x0 + r * xStride, w + o * wStride, c, y + r * outStride + o, I);
    }
  }
  for (; t < T; t++) {
    for (let o = 0; o < O; o++) one(x + t * xStride, w + o * wStride, added(bias, o), out + t * outStride + o, I);
  }
}

/** One number of the result. */
@inline
function one(x: i32, w: i32, c: f32, out: i32, I: i32): void {
  const whole = I & ~7;
  let a = f32x4.splat(0), b = a;
  for (let i = 0; i < whole; i += 8) {
    a = f32x4.add(a, f32x4.mul(v128.load(at(x + i)), v128.load(at(w + i))));
    b = f32x4.add(b, f32x4.mul(v128.load(at(x + i + 4)), v128.load(at(w + i + 4))));
  }
  store<f32>(at(out), total(f32x4.add(a, b)) + rest(x, w, whole, I) + c);
}
