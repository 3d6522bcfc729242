#include "runtime/command_line.h"

#include <algorithm>
#include <fstream>

namespace ferry {

std::string command_line() {
  std::string text(4096, '\0');
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

}  // namespace ferry
