// The image over time: which code was where, and when it was mapped, patched and freed.
function regionPicture(region) {
  const left = 150, width = 1040, height = 150, bottom = height - 8, rowHeight = (bottom - 8) / region.rows;
  const y = (share) => bottom - share * (bottom - 8);
  const picture = svg('svg', {viewBox: '0 0 ' + (left + width + 10) + ' ' + height, class: 'image', role: 'img',
    'aria-label': region.space + ' ' + region.first + ' to ' + region.last + ': ' + region.sections + ' mappings, ' + region.changes +
      ' changes; the table of changes has the details'});
  picture.append(svg('rect', {x: left, y: 8, width, height: bottom - 8, class: 'track'}),
    svg('text', {x: left - 8, y: 18, 'text-anchor': 'end', class: 'axis', text: region.last}),
    svg('text', {x: left - 8, y: bottom, 'text-anchor': 'end', class: 'axis', text: region.first}));
  for (const mapping of region.mappings) {
    const tall = Math.max(2, y(mapping.bottom) - y(mapping.top));
    picture.append(svg('rect', {x: left + mapping.from * width, y: Math.max(8, y(mapping.bottom) - tall), width: Math.max(2, (mapping.to - mapping.from) * width), height: tall,
      class: mapping.known ? 'mapping' : 'mapping unknown'},
    svg('title', {text: mapping.name + ', ' + mapping.first + ', ' + bytes(mapping.size) + (mapping.known ? '' : ', bytes not found')})));
    if (mapping.appears) picture.append(svg('line', {x1: left + mapping.from * width, x2: left + mapping.from * width, y1: y(mapping.bottom) + 2, y2: y(mapping.top) - 4, class: 'appears'}));
    if (mapping.ends) picture.append(svg('line', {x1: left + mapping.to * width, x2: left + mapping.to * width, y1: y(mapping.bottom) + 2, y2: y(mapping.top) - 4, class: 'ends'}));
  }
  const most = Math.max(1, ...region.cells.map((cell) => cell[3]));
  for (const [row, bin, isPatch, changes] of region.cells) {
    if (!isPatch) continue;
    picture.append(svg('rect', {x: left + bin / data.density.bins * width, y: bottom - (row + 1) * rowHeight, width: Math.max(3, width / data.density.bins), height: Math.max(4, rowHeight),
      class: 'patch', opacity: (0.45 + 0.55 * Math.sqrt(changes / most)).toFixed(2)},
    svg('title', {text: count(changes) + ' patched from ' + binTime(bin) + ' s'})));
  }
  const line = svg('line', {y1: 8, y2: bottom, class: 'cursor'});
  cursors.push((bin) => {
    const x = left + (bin + 0.5) / data.density.bins * width;
    line.setAttribute('x1', x);
    line.setAttribute('x2', x);
  });
  picture.append(line);
  picture.addEventListener('click', (event) => {
    const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * (left + width + 10);
    if (data.span.dated) chooseBin(Math.floor((x - left) / width * data.density.bins));
  });
  return picture;
}
const code = (text) => el('pre', {text: text.trimEnd()});

function showImage() {
  const image = data.image;
  const part = section('image', 'The image over time', el('p', {text: many(image.sections, 'mapping') + ' of code; ' + many(image.places, 'place') +
    ' changed while mapped; ' + many(image.all_changes, 'change') + ' in all.'}));
  if (!image.sections && !image.places) return;
  part.append(el('p', {class: 'legend'}, el('span', {class: 'key mapping', text: 'mapped'}), ' ', el('span', {class: 'key unknown', text: 'mapped, bytes not found'}), ' ',
    el('span', {class: 'key appears', text: 'appears'}), ' ', el('span', {class: 'key ends', text: 'freed'}), ' ', el('span', {class: 'key patch', text: 'patched'})));
  if (data.span.dated) {
    for (const region of image.regions) {
      const names = [...new Set(region.mappings.map((mapping) => mapping.name))];
      part.append(el('h3', {text: region.space + ': ' + names.slice(0, 4).join(', ') + (names.length > 4 ? ' and ' + (names.length - 4) + ' more' : '')}),
        el('div', {class: 'picture'}, regionPicture(region)));
    }
  } else {
    part.append(el('p', {text: 'The trace contains no time: the pictures of address against time are left out.'}));
  }
  part.append(details('The mappings as a table', table('Mappings of the regions shown', [
    {title: 'name', value: (row) => row.name}, {title: 'space', value: (row) => row.space}, {title: 'address', value: (row) => row.first},
    {title: 'size', value: (row) => row.size, text: (row) => bytes(row.size), number: true},
    {title: 'mapped', value: (row) => row.appears || 'before or from the start'},
    {title: 'freed', value: (row) => row.ends || 'not seen'}],
  image.regions.flatMap((region) => region.mappings.map((mapping) => ({...mapping, space: region.space}))), {sorts: true}).element));
  if (!image.changes.length) return;
  const made = table('Changes of code', [
    {title: 'time', value: (row) => row.time, short: true}, {title: 'what', value: (row) => row.kind, short: true}, {title: 'where', value: (row) => row.ip,
      node: (row) => el('span', {}, el('code', {class: 'address', text: row.ip}), el('br'), row.name)},
    {title: 'before', value: (row) => row.before, node: (row) => code(row.before)}, {title: 'after', value: (row) => row.after, node: (row) => code(row.after)},
    {title: 'look closer', value: () => '', node: (row) => command('image ' + row.ip + ' --versions --size ' + Math.min(row.size, 4096))}],
  image.changes, {sorts: true});
  made.element.classList.add('tall');
  part.append(el('h3', {text: 'Changes, with the code before and after'}),
    search('Search changes', made, (row) => [row.time, row.kind, row.ip, row.name, row.before, row.after].join(' ')), made.element,
    el('p', {}, 'Everything that changed between two moments: ', command('image --diff A,B')));
}
