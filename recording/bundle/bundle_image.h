// The image of a bundle: the input of its timeline, and names. Private to recording.
#pragma once

#include "ptdecode/symbols.h"
#include "recording/bundle/bundle_code.h"
#include "recording/bundle/bundle_wire.h"
#include "recording/data/image_log.h"
#include "recording/image/image_build.h"

namespace ptd {

void write_image(const ImageLog& log, const BundleCodeWriter& code, ByteWriter& out);
/// Adds everything to `image`, except the text pokes that the options drop, which are also removed from `pokes`.
/// Errors: file_format.
Status read_image(ByteReader in, const BundleCodeReader& code, const OpenRequest& options, ImageBuild& image,
                  std::vector<PokeStamp>& pokes);

void write_finding(const Finding& finding, ByteWriter& out);
/// in.ok() is false if it does not fit.
[[nodiscard]] Finding read_finding(ByteReader& in);

void write_symbols(const SymbolPick& pick, ByteWriter& out);
/// Writes FixedSymbol::place. Returns false if no symbol has one.
bool write_places(const SymbolPick& pick, ByteWriter& out);
/// Same for FixedSymbol::aliases, NamedRange::place, NamedRange::lines and FileSymbolPick::frames.
bool write_aliases(const SymbolPick& pick, ByteWriter& out);
bool write_range_places(const SymbolPick& pick, ByteWriter& out);
bool write_range_lines(const SymbolPick& pick, ByteWriter& out);
bool write_frames(const SymbolPick& pick, ByteWriter& out);
bool write_sites(const SymbolPick& pick, ByteWriter& out);
/// Errors: file_format.
Result<SymbolPick> read_symbols(ByteReader in);
/// Errors: file_format.
Status read_places(ByteReader in, SymbolPick& pick);
Status read_aliases(ByteReader in, SymbolPick& pick);
Status read_range_places(ByteReader in, SymbolPick& pick);
Status read_range_lines(ByteReader in, SymbolPick& pick);
Status read_frames(ByteReader in, SymbolPick& pick);
Status read_sites(ByteReader in, SymbolPick& pick);

}  // namespace ptd
