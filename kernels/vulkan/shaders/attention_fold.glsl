// How the sums over splits of keys become one. Every kernel of attention adds a row's splits with these expressions in
// ascending order, so that it does not matter who adds them.
#include "exponential.glsl"

#define NO_SCORE uintBitsToFloat(0xff800000u)  // minus infinity: the largest of no scores

// e^(score - largest), where the largest of no scores may be that of none.
float weight_of(float score, float largest) { return score == largest ? 1.0 : accurate_exp(score - largest); }
vec4 weight_of(vec4 score, vec4 largest) {
  return vec4(weight_of(score.x, largest.x), weight_of(score.y, largest.y), weight_of(score.z, largest.z),
              weight_of(score.w, largest.w));
}

// The sum of weights, or a weighted sum of values, behind the next split's. A split without keys has a weight of 0 and leaves
// the others' at 1.
float fold(float sum, float keep, float next, float next_weight) {
  precise float scaled = next * next_weight;
  precise float folded = fma(sum, keep, scaled);
  return folded;
}
vec4 fold(vec4 sum, vec4 keep, vec4 next, vec4 next_weight) {
  precise vec4 scaled = next * next_weight;
  precise vec4 folded = fma(sum, keep, scaled);
  return folded;
}
