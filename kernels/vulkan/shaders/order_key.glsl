// Numbers as integers of the same order, which no device flushes to zero.

// Never 0; a NaN comes last, behind minus infinity.
uint order_key(float x) {
  if (is_nan(x)) return 1;
  uint bits = floatBitsToUint(x);
  if ((bits << 1) == 0) bits = 0;  // both zeros are one
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
