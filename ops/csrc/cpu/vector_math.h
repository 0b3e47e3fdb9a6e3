// Elementary functions in float32 that a compiler vectorises: no calls, no
// branches. Accurate to about two units in the last place; the coefficients
// are least-squares fits at Chebyshev nodes.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace mmturbox {

struct VectorMath {
  // exp(-a) for a >= 0; exact zero where the result would not be normal.
  static inline float exp_negative(float a) {
    const float shift = 12582912.0f;  // 1.5 * 2^23: rounds to an integer.
    const float shifted = -a * 1.44269504089f + shift;
    const float n = shifted - shift;
    // ln 2 in two parts, the first exact in few bits.
    float r = -a - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float sum = 0.001393364259f;
    sum = sum * r + 0.008363174946f;
    sum = sum * r + 0.04166646498f;
    sum = sum * r + 0.1666657701f;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    const int32_t exponent = (bits - 0x4b400000 + 127) << 23;
    float scale;
    std::memcpy(&scale, &exponent, sizeof(scale));
    return a > 87.0f ? 0.0f : sum * scale;
  }

  // log(1 + e) for 0 <= e <= 1, as 2 artanh(e / (2 + e)).
  static inline float log_one_plus(float e) {
    return twice_artanh(e / (2.0f + e));
  }

  // Of a finite value; subnormal ones count as the smallest normal one.
  static inline float log(float value) {
    const float tiny = std::numeric_limits<float>::min();
    const float normal = value > tiny ? value : tiny;
    int32_t bits;
    std::memcpy(&bits, &normal, sizeof(bits));
    // normal = m * 2^n with m in [sqrt(1/2), sqrt(2)).
    const int32_t n = (bits - 0x3f3504f3) >> 23;
    bits -= n * (1 << 23);
    float m;
    std::memcpy(&m, &bits, sizeof(m));
    const float result = static_cast<float>(n) * 0.69314718056f +
                         twice_artanh((m - 1.0f) / (m + 1.0f));
    const float infinity = std::numeric_limits<float>::infinity();
    return value > 0.0f    ? result
           : value == 0.0f ? -infinity
                           : std::numeric_limits<float>::quiet_NaN();
  }

 private:
  // For |s| <= 1/3.
  static inline float twice_artanh(float s) {
    const float z = s * s;
    float sum = 0.1343377423f;
    sum = sum * z + 0.1411697805f;
    sum = sum * z + 0.2000383543f;
    sum = sum * z + 0.3333331983f;
    return 2.0f * s + 2.0f * s * (z * sum);
  }
};

}  // namespace mmturbox
