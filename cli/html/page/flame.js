// The flame graph: time by stack of calls, outermost on top. A frame is a button; the arrow keys go to its caller, callee and neighbours.
const flame = {frames: [], children: [], zoomed: 0, focus: 0, word: ''};

function prepareFlame() {
  flame.frames = data.flame.frames.map(([name, parent, amount, self, calls], index) => ({index, name: data.flame.names[name] || '(name not known)', parent, amount, self, calls}));
  flame.children = flame.frames.map(() => []);
  for (const frame of flame.frames) if (frame.index) flame.children[frame.parent].push(frame.index);
  for (const list of flame.children) list.sort((a, b) => flame.frames[b].amount - flame.frames[a].amount);
}
const flameAmount = (value) => data.flame.unit === 'ns' ? duration(value) : count(value) + ' instructions';
function hue(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; ++i) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619) >>> 0;
  return name.startsWith('[') ? 'hsl(0 0% ' + (62 + hash % 12) + '%)' : 'hsl(' + (8 + hash % 42) + ' ' + (70 + hash % 20) + '% ' + (60 + hash % 10) + '%)';
}
function flameMatches(frame) { return flame.word !== '' && frame.name.toLowerCase().includes(flame.word); }

// Frames from the zoomed one down, with their places; those narrower than half a pixel are left out.
function flameLayout(width) {
  const out = [], path = [];
  for (let at = flame.zoomed; ; at = flame.frames[at].parent) {
    path.unshift(at);
    if (at === 0) break;
  }
  path.slice(0, -1).forEach((index, depth) => out.push({index, x: 0, w: width, depth, outer: true}));
  const todo = [{index: flame.zoomed, x: 0, w: width, depth: path.length - 1}];
  while (todo.length) {
    const place = todo.pop();
    out.push(place);
    let x = place.x;
    const scale = flame.frames[place.index].amount ? place.w / flame.frames[place.index].amount : 0;
    for (const child of flame.children[place.index]) {
      const w = flame.frames[child].amount * scale;
      if (w >= 0.5) todo.push({index: child, x, w, depth: place.depth + 1});
      x += w;
    }
  }
  return out;
}
function flameLabel(frame) {
  return frame.name + ', ' + flameAmount(frame.amount) + ', ' + percent(frame.amount, flame.frames[0].amount) +
    (frame.calls ? ', ' + count(frame.calls) + (frame.calls === 1 ? ' call' : ' calls') : '');
}
function drawFlame(picture, info, callees, keepFocus) {
  const width = 1190, row = 19, places = flameLayout(width);
  const deepest = places.reduce((most, place) => Math.max(most, place.depth), 0);
  picture.setAttribute('viewBox', '0 0 ' + width + ' ' + ((deepest + 1) * row + 2));
  picture.replaceChildren(...places.map((place) => {
    const frame = flame.frames[place.index], room = Math.floor((place.w - 6) / 7);
    const text = room < 3 ? '' : frame.name.length <= room ? frame.name : frame.name.slice(0, room - 1) + '…';
    const rect = svg('rect', {x: place.x, y: place.depth * row, width: Math.max(0.3, place.w - 0.5), height: row - 1, rx: 1, fill: hue(frame.name)});
    const group = svg('g', {class: 'frame' + (place.outer ? ' outer' : '') + (flameMatches(frame) ? ' match' : ''), role: 'button', 'data-frame': place.index,
      tabindex: place.index === flame.focus ? '0' : '-1', 'aria-label': flameLabel(frame)}, rect,
    svg('text', {x: place.x + 3, y: place.depth * row + 13, text}), svg('title', {text: flameLabel(frame)}));
    return group;
  }));
  const zoomed = flame.frames[flame.zoomed];
  callees.replaceChildren(table('Callees of ' + zoomed.name, [
    {title: 'callee', value: (index) => flame.frames[index].name},
    {title: data.flame.unit === 'ns' ? 'time' : 'instructions', value: (index) => flame.frames[index].amount, text: (index) => flameAmount(flame.frames[index].amount), number: true},
    {title: 'share', value: (index) => flame.frames[index].amount, text: (index) => percent(flame.frames[index].amount, zoomed.amount), number: true},
    {title: 'calls', value: (index) => flame.frames[index].calls, text: (index) => count(flame.frames[index].calls), number: true}],
  flame.children[flame.zoomed].slice(0, 50)).element);
  if (!flame.word) info.textContent = flameLabel(zoomed);
  const focused = picture.querySelector('[data-frame="' + flame.focus + '"]');
  if (keepFocus && focused) focused.focus();
}
// The share of time in frames that match; what is inside of a match counts once.
function searchFlame(word) {
  flame.word = word.trim().toLowerCase();
  if (!flame.word) return '';
  let found = 0, total = 0;
  const inside = [];
  for (const frame of flame.frames) {
    const hit = flameMatches(frame), outer = frame.index !== 0 && inside[frame.parent];
    inside.push(hit || outer);
    found += hit;
    if (hit && !outer) total += frame.amount;
  }
  return word + ': ' + percent(total, flame.frames[0].amount) + ' in ' + found + (found === 1 ? ' frame' : ' frames');
}
function flameNeighbour(index, key) {
  if (key === 'ArrowUp') return index ? flame.frames[index].parent : index;
  if (key === 'ArrowDown') return flame.children[index].length ? flame.children[index][0] : index;
  const siblings = index ? flame.children[flame.frames[index].parent] : [0], at = siblings.indexOf(index) + (key === 'ArrowRight' ? 1 : -1);
  return at < 0 || at >= siblings.length ? index : siblings[at];
}
function showFlame() {
  const part = section('flame', 'Flame graph');
  prepareFlame();
  if (flame.frames.length < 2) {
    part.append(el('p', {text: 'No call was decoded.'}));
    return;
  }
  const info = el('p', {class: 'moment', 'aria-live': 'polite', id: 'flame-info'}), callees = el('div');
  const picture = svg('svg', {class: 'flame', role: 'group', 'aria-label': 'Flame graph: arrow keys move, Enter zooms in, Escape zooms out'});
  const redraw = (keepFocus) => drawFlame(picture, info, callees, keepFocus);
  const zoom = (index, keepFocus) => { flame.zoomed = flame.focus = index; redraw(keepFocus); };
  const field = el('input', {type: 'search', id: 'flame-search', autocomplete: 'off', spellcheck: 'false', oninput: () => {
    const result = searchFlame(field.value);
    redraw(false);
    if (result) info.textContent = result;
  }});
  picture.addEventListener('click', (event) => {
    const group = event.target.closest('[data-frame]');
    if (group) zoom(Number(group.getAttribute('data-frame')), true);
  });
  picture.addEventListener('keydown', (event) => {
    const group = event.target.closest('[data-frame]');
    if (!group) return;
    const index = Number(group.getAttribute('data-frame'));
    if (event.key === 'Enter' || event.key === ' ') zoom(index, true);
    else if (event.key === 'Escape') zoom(0, true);
    else if (event.key.startsWith('Arrow')) {
      const next = picture.querySelector('[data-frame="' + flameNeighbour(index, event.key) + '"]');
      if (next) {
        group.setAttribute('tabindex', '-1');
        next.setAttribute('tabindex', '0');
        flame.focus = Number(next.getAttribute('data-frame'));
        next.focus();
      }
    } else return;
    event.preventDefault();
  });
  part.append(el('p', {class: 'note', text: 'Width: ' + (data.flame.unit === 'ns' ? 'time' : 'instructions') + ' of each stack of calls, callers on top. ' +
    'Click a frame to zoom in. With the keyboard: arrows, Enter, Escape.'}),
  el('p', {class: 'controls'}, el('label', {}, 'Search the graph ', field), ' ',
    el('button', {type: 'button', text: 'Zoom out', onclick: () => zoom(0, false)})),
  info, el('div', {class: 'picture', tabindex: '0', role: 'group', 'aria-label': 'Picture of the flame graph'}, picture), details('Callees of the zoomed frame as a table', callees));
  redraw(false);
}
