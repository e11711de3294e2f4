// SPDX-License-Identifier: Apache-2.0
// The list of integer formats: what a file of this folder has for one, it installs for all.
#pragma once

#include "kernels/cpu/avx2/formats_k.h"
#include "kernels/cpu/avx2/formats_table.h"
#include "kernels/cpu/gemm.h"

namespace nanomind::avx2 {
namespace {

// Calls f.operator()<Format>(type) for each.
template <typename F>
void for_each_format(const F& f) {
  f.template operator()<Q4_0>(IntWeight::q4_0);
  f.template operator()<Q4_1>(IntWeight::q4_1);
  f.template operator()<Q5_0>(IntWeight::q5_0);
  f.template operator()<Q5_1>(IntWeight::q5_1);
  f.template operator()<Q8_0>(IntWeight::q8_0);
  f.template operator()<Q2_K>(IntWeight::q2_k);
  f.template operator()<Q3_K>(IntWeight::q3_k);
  f.template operator()<Q4_K>(IntWeight::q4_k);
  f.template operator()<Q5_K>(IntWeight::q5_k);
  f.template operator()<Q6_K>(IntWeight::q6_k);
  f.template operator()<IQ4_NL>(IntWeight::iq4_nl);
  f.template operator()<IQ4_XS>(IntWeight::iq4_xs);
  f.template operator()<MXFP4>(IntWeight::mxfp4);
}

}  // namespace
}  // namespace nanomind::avx2
