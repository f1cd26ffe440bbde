// Files that are whole or not there.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

namespace mb {

// Hands `write` a stream. A regular file is written beside its place and renamed into it, so that
// no reader sees half of it and a link stays one; what is there and is not a regular file
// (/dev/stdout, a FIFO) is written to as it is. Throws Error naming the path if that fails.
void write_whole(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace mb
