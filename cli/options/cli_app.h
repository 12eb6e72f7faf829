// CLI11's classes by name only. Its headers cost each file that includes them six seconds to compile, so they are for files that add
// options.
#pragma once

namespace CLI {
class App;
class FormatterBase;
class ParseError;
}  // namespace CLI
