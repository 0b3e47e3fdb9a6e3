// Launch functions of geometry_kernel_attn.cu.
#pragma once

#include "attention_args.h"

namespace mmturbox {

template <typename T>
void geometry_kernel_attn_cuda(const AttentionArgs& args, Stream stream);

template <typename T>
void geometry_kernel_attn_backward_cuda(const AttentionArgs& args,
                                        Stream stream);

}  // namespace mmturbox
