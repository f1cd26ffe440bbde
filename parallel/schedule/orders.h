// The order of each built-in schedule and the shapes it can take; schedules() lists them.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace mb {

std::vector<Slot> gpipe(int rank, const PipelineShape& shape);
std::vector<Slot> one_f_one_b(int rank, const PipelineShape& shape);
std::vector<Slot> interleaved(int rank, const PipelineShape& shape);
std::vector<Slot> zb_h1(int rank, const PipelineShape& shape);
std::vector<Slot> interleaved_zb(int rank, const PipelineShape& shape);
std::vector<Slot> zb_v(int rank, const PipelineShape& shape);
std::vector<Slot> dualpipe_v(int rank, const PipelineShape& shape);

// Each throws Error, `name` first, for a shape outside its rule.
void check_chunks(std::string_view name, const PipelineShape& shape, int chunks);
void check_rounds(std::string_view name, const PipelineShape& shape);
void check_two_a_rank(std::string_view name, const PipelineShape& shape);

}  // namespace mb
