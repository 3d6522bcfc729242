# Writes the page's sources as C++ strings.
#   cmake -DPAGE_DIR=<folder of page.html, page.css and the scripts> -DBASE_STYLE=<base.css> -DOUTPUT=<file.cpp> -DHEADER=<page_source.h>
#     -DNAMESPACE=<that of its strings> "-DFILES=more.css,a.js,b.js" -P embed_page.cmake
string(REPLACE "," ";" SCRIPTS "${FILES}")
set(STYLES ${SCRIPTS})
list(FILTER STYLES INCLUDE REGEX "\\.css$")
list(FILTER SCRIPTS EXCLUDE REGEX "\\.css$")

function(append_literal path)
  file(READ "${path}" text)
  file(APPEND "${OUTPUT}.new" "    R\"page(${text})page\"\n")
endfunction()

file(WRITE "${OUTPUT}.new" "// Made by embed_page.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
file(APPEND "${OUTPUT}.new" "const std::string_view kHtml =\n")
append_literal("${PAGE_DIR}/page.html")
file(APPEND "${OUTPUT}.new" "    ;\nconst std::string_view kStyle =\n")
append_literal("${BASE_STYLE}")
append_literal("${PAGE_DIR}/page.css")
foreach(style ${STYLES})
  append_literal("${PAGE_DIR}/${style}")
endforeach()
file(APPEND "${OUTPUT}.new" "    ;\nconst std::string_view kScript =\n")
foreach(script ${SCRIPTS})
  append_literal("${PAGE_DIR}/${script}")
endforeach()
file(APPEND "${OUTPUT}.new" "    ;\n\n}  // namespace ${NAMESPACE}\n")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
