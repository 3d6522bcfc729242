#include "runtime/model/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr int kJsonDepthMax = 16;                    // configurations have 4 levels, tokenizers 6, the headers of weights 3
constexpr int64_t kTextBytesMax = int64_t{1} << 28;  // tokenizers and indices of large models have tens of MB
constexpr std::size_t kShownMax = 120;               // bytes of a value in a message

[[noreturn]] void throw_system(ErrorCode code, const char* what, const std::filesystem::path& path) {
  throw Error(code, what + path.string() + ": " + std::strerror(errno));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Brackets are counted before parsing: a parser with callbacks would need twice the time for a large tokenizer.
void check_depth(std::string_view text, const std::string& path) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;  // whatever follows, it does not end the string
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kJsonDepthMax) throw_invalid(path + ": JSON is nested deeper than " + std::to_string(kJsonDepthMax));
  }
}

/// Refuses keys that occur twice in an object. The depth is checked.
json parse_unique(std::string_view text, const std::string& path) {
  std::array<std::set<std::string>, kJsonDepthMax + 1> keys;  // of the objects that are open, by depth
  const auto on_event = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys[static_cast<std::size_t>(depth) + 1].clear();
    if (event == json::parse_event_t::key && !keys[static_cast<std::size_t>(depth)].insert(value.get<std::string>()).second) {
      throw_invalid(path + ": key " + in_quotes(value.get_ref<const std::string&>()) + " occurs twice");
    }
    return true;
  };
  return json::parse(text.begin(), text.end(), on_event);
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO must be an error, not a hang.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system(ErrorCode::kNotFound, "cannot open ", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system(ErrorCode::kFailedPrecondition, "cannot read ", path);
  if (!S_ISREG(status.st_mode)) throw_invalid(path.string() + ": not a regular file");
  if (status.st_size > kTextBytesMax) {
    throw_invalid(path.string() + ": " + std::to_string(status.st_size) + " bytes; allowed: at most " +
                  std::to_string(kTextBytesMax));
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t num_read = 0;
  while (num_read < text.size()) {
    const ssize_t piece = ::read(file.get(), text.data() + num_read, text.size() - num_read);
    if (piece < 0 && errno == EINTR) continue;
    if (piece < 0) throw_system(ErrorCode::kFailedPrecondition, "cannot read ", path);
    if (piece == 0) break;  // somebody shortened the file meanwhile
    num_read += static_cast<std::size_t>(piece);
  }
  text.resize(num_read);
  return text;
}

json parse_json(std::string_view text, const std::string& path, DuplicateKeys duplicates) {
  check_depth(text, path);
  try {
    if (duplicates == DuplicateKeys::kLastWins) return json::parse(text.begin(), text.end());
    return parse_unique(text, path);
  } catch (const json::exception& e) {
    throw_invalid(path + ": not valid JSON: " + in_quotes(e.what()));
  }
}

json read_json_file(const std::filesystem::path& path, DuplicateKeys duplicates) {
  return parse_json(read_text_file(path), path.string(), duplicates);
}

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, kShownMax)) result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return result + (text.size() > kShownMax ? "…'" : "'");
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= kShownMax ? text : text.substr(0, kShownMax - 3) + "...";
}

}  // namespace ferry
