// Functions of numbers that every drawing uses.

export const { abs, ceil, floor, max, min, round, sqrt } = Math;

/** Is a weight no number? It is hidden by the mask. */
export const { isNaN: isMissing } = Number;
