# Writes a C++ file with the contents of text files: cmake -DOUTPUT=x.cc "-DFILES=a.css;b.js" -P EmbedFiles.cmake
# A table of bytes has no limit on its length, as a string literal has.
set(tables "")
set(branches "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} content HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," content "${content}")
  string(APPEND tables "constexpr char kFile${number}[] = {${content}};\n")
  string(APPEND branches "  if (name == \"${name}\") return {kFile${number}, sizeof kFile${number}};\n")
  math(EXPR number "${number} + 1")
endforeach()
set(content "#include \"cli/html/page_files.h\"
namespace ptd::cli {
namespace {
${tables}}
std::string_view page_file(std::string_view name) {
${branches}  return {};
}
}
")
file(WRITE ${OUTPUT} "${content}")
