// The image over time: which code was where, and when it was mapped, patched and freed.
const imageFrame = {left: 330, width: 860, axis: 22};
const imageX = (share) => imageFrame.left + share * imageFrame.width;

// The height of a band of addresses: rows with changes are tall enough for a name, the others are thin.
function bandShape(band) {
  const named = new Set(band.labels.map(([row]) => row));
  const plain = Math.max(band.mappings.length > 8 ? 40 : 16, Math.min(56, 4 * Math.log2(band.size / 64 + 2)));
  const heights = Array.from({length: band.rows}, (_, row) => named.has(row) ? 15 : named.size ? 3 : plain / band.rows);
  const starts = [0];
  for (const height of heights) starts.push(starts[starts.length - 1] + height);
  const tall = Math.max(16, starts[band.rows]);
  return {starts, heights, tall, at: (share) => {
    const row = Math.min(band.rows - 1, Math.floor(share * band.rows));
    return (starts[row] + (share * band.rows - row) * heights[row]) * tall / starts[band.rows];
  }};
}
function drawMapping(picture, mapping, base, shape, isOther, thin) {
  const low = base - shape.at(mapping.bottom), tall = Math.max(3, low - (base - shape.at(mapping.top)));
  const x = imageX(mapping.from), wide = Math.max(2, (mapping.to - mapping.from) * imageFrame.width);
  const what = mapping.name + ', ' + mapping.first + ', ' + bytes(mapping.size) + (mapping.known ? '' : ', bytes not found') +
    (mapping.appears ? ', from ' + mapping.appears : '') + (mapping.ends ? ', until ' + mapping.ends : '');
  picture.append(svg('rect', {x, y: low - tall, width: wide, height: tall, class: (mapping.known ? 'mapping' : 'mapping unknown') + (isOther ? ' other' : '')},
    svg('title', {text: what})));
  if (mapping.appears) picture.append(svg('line', {x1: x, x2: x, y1: low, y2: low - tall, class: thin + 'appears'}));
  if (mapping.ends) picture.append(svg('line', {x1: x + wide, x2: x + wide, y1: low, y2: low - tall, class: thin + 'ends'}));
  return {x, wide, low, tall};
}
// Mappings of a band in order of time; where one replaces another, the shade changes. A name is written where it has room.
function drawMappings(picture, band, base, shape) {
  const before = new Map();  // first address -> whether the last one there had the other shade
  const names = [];
  for (const mapping of band.mappings) {
    const isOther = before.has(mapping.first) && !before.get(mapping.first);
    before.set(mapping.first, isOther);
    const place = drawMapping(picture, mapping, base, shape, isOther, band.mappings.length > 40 ? 'thin ' : '');
    if (!band.labels.length && band.mappings.length <= 12 && place.tall >= 13 && place.wide >= mapping.name.length * 7 + 10) {
      names.push(svg('text', {x: place.x + 6, y: place.low - place.tall / 2 + 4, class: 'inside', text: mapping.name}));
    }
  }
  picture.append(...names);
}
function drawCells(picture, band, base, shape) {
  const step = imageFrame.width / data.density.bins, scale = shape.tall / shape.starts[band.rows];
  for (const [row, bin, kind, changes] of band.cells) {
    if (kind === 'created' && !band.sections) {  // code that no mapping has, until it is removed
      const removed = band.cells.find((cell) => cell[0] === row && cell[1] >= bin && cell[2] === 'removed');
      picture.append(svg('rect', {x: imageX(bin / data.density.bins), y: base - shape.starts[row + 1] * scale + 1, class: 'mapping',
        width: ((removed ? removed[1] : data.density.bins) - bin) * step, height: Math.max(3, shape.heights[row] * scale - 2)}));
    }
    picture.append(svg('rect', {x: imageX(bin / data.density.bins), y: base - shape.starts[row + 1] * scale + 1, width: Math.max(3.5, step),
      height: Math.max(3, shape.heights[row] * scale - 2), class: 'cell ' + kind, 'data-bin': bin},
    svg('title', {text: many(changes, 'time') + ' ' + kind + ' from ' + binTime(bin) + ' s on'})));
  }
  for (const [row, name, places] of band.labels) {
    const more = places > 1 ? ' +' + (places - 1) : '', room = 24 - more.length, text = name || '(no name)';
    picture.append(svg('text', {x: imageFrame.left - 8, y: base - shape.starts[row] * scale - 4, 'text-anchor': 'end', class: 'label row', 'data-name': name,
      text: (text.length > room ? text.slice(0, room - 1) + '…' : text) + more}, svg('title', {text: text + (more ? ' and ' + many(places - 1, 'more place') : '')})));
  }
}
function drawTimes(picture, y) {
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(svg('line', {x1: imageX(share), x2: imageX(share), y1: 0, y2: y, class: 'grid'}), svg('text', {x: imageX(share), y: y + 15, class: 'axis',
      'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle', text: '+' + duration(share * data.span.length_ns)}));
  }
}
// `show`: called with what was clicked: {bin}, or {name} of a row.
function regionPicture(region, show) {
  const shapes = region.bands.map(bandShape), height = shapes.reduce((sum, shape) => sum + shape.tall + 8, 0);
  const right = imageFrame.left + imageFrame.width + 10;
  const picture = svg('svg', {viewBox: '0 0 ' + right + ' ' + (height + imageFrame.axis), class: 'image', role: 'img', 'aria-label': 'Addresses against time, ' +
    region.space + ' ' + region.first + ' to ' + region.last + ': ' + many(region.sections, 'mapping') + ', ' + many(region.changes, 'change') +
      '; the tables below have the details'});
  drawTimes(picture, height);
  let base = height - 4;
  region.bands.forEach((band, i) => {
    const shape = shapes[i];
    picture.append(svg('rect', {x: imageFrame.left, y: base - shape.tall, width: imageFrame.width, height: shape.tall, class: 'track'}),
      svg('text', {x: 130, y: base - 3, 'text-anchor': 'end', class: 'axis', text: band.first}));
    if (shape.tall >= 32) picture.append(svg('text', {x: 130, y: base - shape.tall + 10, 'text-anchor': 'end', class: 'axis', text: band.last}));
    drawMappings(picture, band, base, shape);
    drawCells(picture, band, base, shape);
    base -= shape.tall + 8;
  });
  const line = svg('line', {y1: 0, y2: height, class: 'cursor'});
  cursors.push((bin) => {
    const x = imageX((bin + 0.5) / data.density.bins);
    line.setAttribute('x1', x);
    line.setAttribute('x2', x);
  });
  picture.append(line);
  picture.addEventListener('click', (event) => {
    const name = event.target.getAttribute('data-name'), cell = event.target.getAttribute('data-bin');
    if (name) return show({name});
    const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * right;
    if (x >= imageFrame.left) show({bin: cell === null ? Math.floor((x - imageFrame.left) / imageFrame.width * data.density.bins) : Number(cell)});
  });
  return picture;
}
const code = (text) => el('pre', {text: text.trimEnd()});
const changeBin = (change) => Math.min(data.density.bins - 1, Math.floor(change.at * data.density.bins));

function regionTitle(region) {
  const names = [...new Set(region.bands.flatMap((band) => band.mappings.map((mapping) => mapping.name)))];
  const hidden = region.all_bands - region.bands.length;
  return (region.space === 'kernel' ? 'Kernel' : 'Address space ' + region.space) + ': ' + names.slice(0, 4).join(', ') +
    (names.length > 4 ? ' and ' + (names.length - 4) + ' more' : '') + (hidden ? ' (' + many(hidden, 'range') + ' without or with fewer changes left out)' : '');
}
function showRegions(part, image, show) {
  if (!data.span.dated) {
    part.append(el('p', {text: 'The trace contains no time: the pictures of address against time are left out.'}));
    return;
  }
  const key = (kind, text) => [el('span', {class: 'key ' + kind, text}), ' '];
  part.append(el('p', {class: 'note', text: 'Addresses upwards, time to the right. Addresses that are not in use are left out; a place that changed has a row of its own, ' +
    'with its function (+2: and two more places). Click a mark to list the changes at that moment, and a name to list those of the function.'}),
  el('p', {class: 'legend'}, ...key('mapping', 'mapped'), ...key('mapping other', 'replaced by other code'), ...key('unknown', 'mapped, bytes not found'),
    ...key('appears', 'appears'), ...key('ends', 'freed'), ...key('patched', 'patched'), ...key('created', 'code created'), ...key('removed', 'code removed')));
  for (const region of image.regions) {
    part.append(el('h3', {text: regionTitle(region)}), el('div', {class: 'picture', tabindex: '0', role: 'group', 'aria-label': 'Picture of ' + region.first}, regionPicture(region, show)));
  }
}
function changesTable(image) {
  return table('Changes of code', [
    {title: 'time', value: (row) => row.time, short: true}, {title: 'what', value: (row) => row.kind, short: true}, {title: 'where', value: (row) => row.ip, place: true,
      node: (row) => el('span', {}, el('code', {class: 'address', text: row.ip}), el('br'), row.name)},
    {title: 'before', value: (row) => row.before, node: (row) => code(row.before), wide: true}, {title: 'after', value: (row) => row.after, node: (row) => code(row.after), wide: true},
    {title: 'look closer', value: () => '', node: (row) => command('image ' + row.ip + ' --versions --size ' + Math.min(row.size, 4096)), wide: true}],
  image.changes, {sorts: true});
}
function showImage() {
  const image = data.image;
  const part = section('image', 'The image over time', el('p', {text: many(image.sections, 'mapping') + ' of code; ' + many(image.places, 'place') +
    ' changed while mapped; ' + many(image.all_changes, 'change') + ' in all.'}));
  if (!image.sections && !image.places) return;
  const made = changesTable(image), only = el('input', {type: 'checkbox', id: 'only-moment', onchange: () => find.apply()});
  const find = search('Search changes', made, (row) => [row.time, row.kind, row.ip, row.name, row.before, row.after].join(' '),
    (row) => !only.checked || changeBin(row) === chosenBin);
  const show = (clicked) => {
    if (clicked.name) find.field.value = clicked.name;
    else chooseBin(clicked.bin);
    only.checked = !clicked.name;
    find.apply();
    made.element.scrollIntoView({block: 'nearest'});
  };
  showRegions(part, image, show);
  part.append(details('The mappings as a table', table('Mappings of the regions shown', [
    {title: 'name', value: (row) => row.name}, {title: 'space', value: (row) => row.space}, {title: 'address', value: (row) => row.first},
    {title: 'size', value: (row) => row.size, text: (row) => bytes(row.size), number: true},
    {title: 'mapped', value: (row) => row.appears || 'before or from the start'},
    {title: 'freed', value: (row) => row.ends || 'not seen'}],
  image.regions.flatMap((region) => region.bands.flatMap((band) => band.mappings.map((mapping) => ({...mapping, space: region.space})))), {sorts: true}).element));
  if (!image.changes.length) return;
  made.element.classList.add('tall');
  part.append(el('h3', {text: 'Changes, with the code before and after'}), find.element);
  if (data.span.dated) {
    cursors.push(() => { if (only.checked) find.apply(); });
    part.append(el('p', {class: 'controls'}, momentSlider('Moment of the image'), ' ', el('label', {}, only, ' only the changes at this moment')));
  }
  part.append(made.element, el('p', {}, 'Everything that changed between two moments: ', command('image --diff A,B')));
}
