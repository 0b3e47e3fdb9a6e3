// Launch functions of ms_deform_attn.cu.
#pragma once

#include "attention_args.h"

namespace mmturbox {

template <typename T>
void ms_deform_attn_cuda(const AttentionArgs& args, Stream stream);

template <typename T>
void ms_deform_attn_backward_cuda(const AttentionArgs& args, Stream stream);

}  // namespace mmturbox
