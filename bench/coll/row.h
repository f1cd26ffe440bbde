// Rows of collectives: JSON Lines and CSV of the same fields.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "bench/coll/text.h"
#include "bench/report/json.h"
#include "bench/report/row.h"

namespace mb {

// One row for each group of a point. `head` has the case and its parameters; the row adds the
// point's own. With `raw`, every operation's time.
std::vector<Json> coll_rows(const CollConfig& config, const MeasuredPoint& measured,
                            const Surroundings& around, const RowHead& head, bool raw);

// Of a point, where it came to one, that there was no room for.
Json out_of_memory_row(const CollConfig& config, const std::optional<Point>& point,
                       const Surroundings& around, const RowHead& head, const OutOfMemory& error);

// One object on a line. Records are flushed one by one, so that a file that is cut off holds all
// that were written.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path);  // a file that is there is replaced
  void add(const Json& row);

 private:
  std::string path_;
  std::ofstream out_;
};

// A column for each scalar and array of a row, by its JSON pointer. Text stands as it is where JSON
// would not take it for something else; all else, and such text, as JSON. A cell of what a row does
// not have is empty. The file is flushed row by row, and written anew where a row has a new column.
class CsvFile {
 public:
  explicit CsvFile(const std::string& path);
  void add(const Json& row);

 private:
  void write_all();
  void write(const std::vector<std::string>& cells);

  std::string path_;
  std::ofstream out_;
  std::vector<std::string> columns_;
  std::vector<Json> rows_;  // flat
};

}  // namespace mb
