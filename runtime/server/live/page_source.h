#pragma once

#include <string_view>

// What the page at / is made of, embedded from runtime/server/live/page/ by embed_page.cmake when Ferry is built.

namespace ferry::live_page {

extern const std::string_view kHtml;    // with the marks {{style}} and {{script}}, in this order
extern const std::string_view kStyle;   // page.css
extern const std::string_view kScript;  // the scripts, one behind another

}  // namespace ferry::live_page
