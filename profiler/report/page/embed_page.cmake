# Writes the page's sources as C++ strings.
#   cmake -DPAGE_DIR=<this folder> -DOUTPUT=<file.cpp> "-DSCRIPTS=a.js,b.js" -P embed_page.cmake
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")

function(append_literal path)
  file(READ "${path}" text)
  file(APPEND "${OUTPUT}.new" "    R\"page(${text})page\"\n")
endfunction()

file(WRITE "${OUTPUT}.new" "// Made by embed_page.cmake.\n#include \"profiler/report/page_source.h\"\n\nnamespace ferry::page_source {\n\n")
file(APPEND "${OUTPUT}.new" "const std::string_view kHtml =\n")
append_literal("${PAGE_DIR}/page.html")
file(APPEND "${OUTPUT}.new" "    ;\nconst std::string_view kStyle =\n")
append_literal("${PAGE_DIR}/page.css")
file(APPEND "${OUTPUT}.new" "    ;\nconst std::string_view kScript =\n")
foreach(script ${SCRIPTS})
  append_literal("${PAGE_DIR}/${script}")
endforeach()
file(APPEND "${OUTPUT}.new" "    ;\n\n}  // namespace ferry::page_source\n")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
