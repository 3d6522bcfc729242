#include "profiler/report/findings/format.h"

#include <cstdarg>
#include <cstdio>

namespace ferry {

std::string format(const char* pattern, ...) {
  char text[640];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

}  // namespace ferry
