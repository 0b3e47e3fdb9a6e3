// Inverses of small matrices, their gradients, and products of affine
// matrices, in float64; shared by the CPU and the CUDA kernels.
//
// Element k of a matrix (row by row) is at k * kStride, so that the CPU can
// work on interleaved matrices.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace mmturbox {

enum class InverseKind { kGeneral = 0, kAffine = 1, kRigid = 2 };

template <int kStride>
struct Matrices {
  // a[i] * b[j] - a[j'] * b[i'] in the notation of one array.
  static MMTURBOX_HD double minor(const double* a, int i, int j, int k,
                                  int l) {
    return a[i * kStride] * a[j * kStride] - a[k * kStride] * a[l * kStride];
  }

  static MMTURBOX_HD void inverse2(const double* a, double* out) {
    const double scale = 1 / minor(a, 0, 3, 1, 2);
    out[0 * kStride] = a[3 * kStride] * scale;
    out[1 * kStride] = -a[1 * kStride] * scale;
    out[2 * kStride] = -a[2 * kStride] * scale;
    out[3 * kStride] = a[0 * kStride] * scale;
  }

  // Of the upper left 3 x 3 part of rows of `kWidth` elements.
  template <int kWidth>
  static MMTURBOX_HD void inverse3(const double* a, double* out) {
    constexpr int s = kWidth;
    const double c0 = minor(a, s + 1, 2 * s + 2, s + 2, 2 * s + 1);
    const double c1 = minor(a, s + 2, 2 * s, s, 2 * s + 2);
    const double c2 = minor(a, s, 2 * s + 1, s + 1, 2 * s);
    const double scale = 1 / (a[0] * c0 + a[kStride] * c1 +
                              a[2 * kStride] * c2);
    out[0] = c0 * scale;
    out[1 * kStride] = minor(a, 2, 2 * s + 1, 1, 2 * s + 2) * scale;
    out[2 * kStride] = minor(a, 1, s + 2, 2, s + 1) * scale;
    out[s * kStride] = c1 * scale;
    out[(s + 1) * kStride] = minor(a, 0, 2 * s + 2, 2, 2 * s) * scale;
    out[(s + 2) * kStride] = minor(a, 2, s, 0, s + 2) * scale;
    out[2 * s * kStride] = c2 * scale;
    out[(2 * s + 1) * kStride] = minor(a, 1, 2 * s, 0, 2 * s + 1) * scale;
    out[(2 * s + 2) * kStride] = minor(a, 0, s + 1, 1, s) * scale;
  }

  // By the 2 x 2 minors of the upper and of the lower two rows.
  static MMTURBOX_HD void inverse4(const double* a, double* out) {
    const double u0 = minor(a, 0, 5, 1, 4), u1 = minor(a, 0, 6, 2, 4);
    const double u2 = minor(a, 0, 7, 3, 4), u3 = minor(a, 1, 6, 2, 5);
    const double u4 = minor(a, 1, 7, 3, 5), u5 = minor(a, 2, 7, 3, 6);
    const double l0 = minor(a, 8, 13, 9, 12), l1 = minor(a, 8, 14, 10, 12);
    const double l2 = minor(a, 8, 15, 11, 12), l3 = minor(a, 9, 14, 10, 13);
    const double l4 = minor(a, 9, 15, 11, 13), l5 = minor(a, 10, 15, 11, 14);
    const double s =
        1 / (u0 * l5 - u1 * l4 + u2 * l3 + u3 * l2 - u4 * l1 + u5 * l0);
    cofactors(a + 4 * kStride, l5, l4, l3, l2, l1, l0, s, out);
    cofactors(a, l5, l4, l3, l2, l1, l0, -s, out + kStride);
    cofactors(a + 12 * kStride, u5, u4, u3, u2, u1, u0, s,
              out + 2 * kStride);
    cofactors(a + 8 * kStride, u5, u4, u3, u2, u1, u0, -s,
              out + 3 * kStride);
  }

  // [A t; 0 1] -> [B -Bt; 0 1] with B = inverse of A, in four rows.
  static MMTURBOX_HD void affine(const double* a, double* out) {
    inverse3<4>(a, out);
    translate(a, out);
  }

  // As affine, with B = the transpose of A.
  static MMTURBOX_HD void rigid(const double* a, double* out) {
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 3; ++c)
        out[(4 * r + c) * kStride] = a[(4 * c + r) * kStride];
    translate(a, out);
  }

  // out = -inverse^T grad inverse^T
  template <int kSize>
  static MMTURBOX_HD void backward(const double* grad, const double* inverse,
                                   double* out) {
    double half[kSize];
    for (int i = 0; i < kSize; ++i) {
      for (int j = 0; j < kSize; ++j) {
        half[j] = 0;  // (inverse^T grad)[i][j]
        for (int k = 0; k < kSize; ++k)
          half[j] += inverse[(k * kSize + i) * kStride] *
                     grad[(k * kSize + j) * kStride];
      }
      for (int j = 0; j < kSize; ++j) {
        double sum = 0;
        for (int k = 0; k < kSize; ++k)
          sum += half[k] * inverse[(j * kSize + k) * kStride];
        out[(i * kSize + j) * kStride] = -sum;
      }
    }
  }

  // With inverse = [B s; 0 1]: the rotation is B^T and t = -B^T s.
  static MMTURBOX_HD void rigid_backward(const double* grad,
                                         const double* inverse, double* out) {
    for (int r = 0; r < 3; ++r) {
      double t = 0, to_t = 0;
      for (int k = 0; k < 3; ++k) {
        const double b = inverse[(4 * k + r) * kStride];
        t -= b * inverse[(4 * k + 3) * kStride];
        to_t -= b * grad[(4 * k + 3) * kStride];
      }
      for (int c = 0; c < 3; ++c)
        out[(4 * r + c) * kStride] = grad[(4 * c + r) * kStride] -
                                     t * grad[(4 * c + 3) * kStride];
      out[(4 * r + 3) * kStride] = to_t;
    }
    for (int c = 0; c < 4; ++c) out[(12 + c) * kStride] = 0;
  }

 private:
  // One column of the adjugate from a row and the minors of other rows.
  static MMTURBOX_HD void cofactors(const double* row, double m5, double m4,
                                    double m3, double m2, double m1,
                                    double m0, double s, double* out) {
    const double a = row[0], b = row[kStride], c = row[2 * kStride],
                 d = row[3 * kStride];
    out[0] = s * (b * m5 - c * m4 + d * m3);
    out[4 * kStride] = -s * (a * m5 - c * m2 + d * m1);
    out[8 * kStride] = s * (a * m4 - b * m2 + d * m0);
    out[12 * kStride] = -s * (a * m3 - b * m1 + c * m0);
  }

  static MMTURBOX_HD void translate(const double* a, double* out) {
    for (int r = 0; r < 3; ++r) {
      out[(4 * r + 3) * kStride] =
          -(out[4 * r * kStride] * a[3 * kStride] +
            out[(4 * r + 1) * kStride] * a[7 * kStride] +
            out[(4 * r + 2) * kStride] * a[11 * kStride]);
      out[(12 + r) * kStride] = 0;
    }
    out[15 * kStride] = 1;
  }
};

// The inverse of a matrix of `size` columns (kGeneral), or of four columns.
template <int kStride>
MMTURBOX_HD void invert(InverseKind kind, int64_t size, const double* a,
                        double* out) {
  using M = Matrices<kStride>;
  if (kind == InverseKind::kAffine) return M::affine(a, out);
  if (kind == InverseKind::kRigid) return M::rigid(a, out);
  if (size == 2) return M::inverse2(a, out);
  if (size == 3) return M::template inverse3<3>(a, out);
  M::inverse4(a, out);
}

// The last row of affine and rigid gradients is for the caller to drop.
template <int kStride>
MMTURBOX_HD void invert_backward(InverseKind kind, int64_t size,
                                 const double* grad, const double* inverse,
                                 double* out) {
  using M = Matrices<kStride>;
  if (kind == InverseKind::kRigid)
    return M::rigid_backward(grad, inverse, out);
  if (size == 2) return M::template backward<2>(grad, inverse, out);
  if (size == 3) return M::template backward<3>(grad, inverse, out);
  M::template backward<4>(grad, inverse, out);
}

// A 3 x 4 matrix [A t] that stands for [A t; 0 1].
struct Affine {
  double m[12];

  static MMTURBOX_HD Affine identity() {
    return {{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}};
  }

  template <typename T>
  static MMTURBOX_HD Affine load(const T* from) {
    Affine out;
    for (int k = 0; k < 12; ++k) out.m[k] = static_cast<double>(from[k]);
    return out;
  }

  // this @ right
  MMTURBOX_HD Affine operator*(const Affine& right) const {
    Affine out;
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 4; ++c) {
        double sum = c == 3 ? m[4 * r + 3] : 0;
        for (int k = 0; k < 3; ++k)
          sum += m[4 * r + k] * right.m[4 * k + c];
        out.m[4 * r + c] = sum;
      }
    return out;
  }

  // The gradient of `this @ right` by its left factor, and by its right one.
  static MMTURBOX_HD Affine to_left(const Affine& grad, const Affine& right) {
    Affine out;
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 3; ++c) {
        double sum = 0;
        for (int k = 0; k < 4; ++k)
          sum += grad.m[4 * r + k] * right.m[4 * c + k];
        out.m[4 * r + c] = sum;
      }
      out.m[4 * r + 3] = grad.m[4 * r + 3];
    }
    return out;
  }

  static MMTURBOX_HD Affine to_right(const Affine& left, const Affine& grad) {
    Affine out;
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 4; ++c) {
        double sum = 0;
        for (int k = 0; k < 3; ++k)
          sum += left.m[4 * k + r] * grad.m[4 * k + c];
        out.m[4 * r + c] = sum;
      }
    return out;
  }
};

// The product of `count` matrices of `size` elements each.
template <typename T>
MMTURBOX_HD Affine compose(const T* matrices, int64_t count, int64_t size) {
  Affine product = Affine::identity();
  for (int64_t k = 0; k < count; ++k)
    product = product * Affine::load(matrices + k * size);
  return product;
}

// The gradient of matrix k from that of the product.
template <typename T>
MMTURBOX_HD Affine factor_grad(const Affine& grad, const T* matrices,
                               int64_t count, int64_t size, int64_t k) {
  const Affine before = compose(matrices, k, size);
  const Affine after =
      compose(matrices + (k + 1) * size, count - k - 1, size);
  return Affine::to_right(before, Affine::to_left(grad, after));
}

}  // namespace mmturbox
