#pragma once

#include <string>
#include <string_view>

#include "runtime/text/reply/tool_set.h"

namespace ferry {

/// Writes the arguments of one call as a JSON object while their values arrive as text.
///
/// A value that the schema has as a string, or says nothing about, is written as it comes. One that the schema has as
/// something else is JSON itself: it is kept until it is whole, and is written as a string if it is no JSON. Where the schema
/// has a string and something else, JSON of the other types is meant as such. Python's True, False and None count as JSON's,
/// since that is how the family's template writes earlier calls. A string of which the schema lists the choices is kept, too,
/// and is the choice that it is but for white space around it. What was returned so far and close() together are always
/// valid JSON.
///
///     ArgumentsWriter writer(tools.find("get_weather"));
///     writer.begin("city", out);  writer.value("Par", out);  writer.value("is", out);  writer.end(out);
///     writer.close(out);          // out: {"city": "Paris"}
class ArgumentsWriter {
 public:
  ArgumentsWriter() = default;
  /// `tool` is null if the model called a function that it was not told of; it must outlive the writer.
  explicit ArgumentsWriter(const Tool* tool) : tool_(tool) {}

  /// All append to `out`. A key that was there before is written again: who parses that takes the last value.
  void begin(std::string_view name, std::string& out);
  void value(std::string_view text, std::string& out);
  void end(std::string& out);
  void close(std::string& out);
  /// Ends arguments of which the rest will never come, as they are: what was kept of a value is written, nothing is closed.
  void cut(std::string& out);

 private:
  enum class Mode {
    kString,      // the value is written as it comes
    kMaybeNull,   // a string, if it turns out to be no null
    kWholeValue,  // kept until its end
  };

  void open_string(std::string& out);

  const Tool* tool_ = nullptr;
  bool has_members_ = false;
  bool in_value_ = false;
  Mode mode_ = Mode::kString;
  JsonTypes types_ = 0;
  const std::vector<std::string>* choices_ = nullptr;  // of the value; null: any
  std::string key_;                                    // of the value, as JSON, with what stands before it
  std::string kept_;                                   // what is there of a value that is not written yet
};

/// `arguments`, as an ArgumentsWriter wrote them, with each key once: in its first place with its last value. Cut ones stay as
/// they are.
std::string without_repeated_keys(const std::string& arguments);

}  // namespace ferry
