#pragma once

#include <string_view>

// What report.html is made of, embedded from profiler/report/page/ by embed_page.cmake when Ferry is built.

namespace ferry::page_source {

extern const std::string_view kHtml;    // with the marks {{title}}, {{style}}, {{data}}, {{script}}, in this order
extern const std::string_view kStyle;   // page.css
extern const std::string_view kScript;  // the scripts, one behind another

}  // namespace ferry::page_source
