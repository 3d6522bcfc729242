#include "runtime/command_line.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>

#include "profiler/capture.h"

namespace ferry {

namespace {

/// As a shell takes it for one word.
std::string quoted(const std::string& word) {
  const bool is_plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-./:=,@%+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string command_line() {
  std::string text(kMostCommandBytes, '\0');
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    line += (line.empty() ? "" : " ") + quoted(text.substr(at, end - at));
    at = end + 1;
  }
  line.resize(std::min(line.size(), kMostCommandBytes));
  return line;
}

}  // namespace ferry
