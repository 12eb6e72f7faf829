'use strict';
// Helpers. Text from the recording goes through textContent and setAttribute only, never through markup.
const data = JSON.parse(document.getElementById('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'text') element.textContent = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children || []) if (child) element.append(child);
  return element;
}
const el = (name, attributes, ...children) => put(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => put(document.createElementNS(SVG, name), attributes, children);

const count = (value) => Number(value).toLocaleString('en-US');
const many = (value, word) => count(value) + ' ' + word + (value === 1 ? '' : 's');
const known = (id) => id < 0 ? '-' : id;
function duration(ns) {
  if (ns < 1000) return ns + ' ns';
  let value = ns / 1000, unit = 'us';
  for (const larger of ['ms', 's']) {
    if (value < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  return (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0)) + ' ' + unit;
}
function bytes(size) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (size >= 1024 && unit + 1 < units.length) size /= 1024, ++unit;
  return (unit ? size.toFixed(1) : size) + ' ' + units[unit];
}
const percent = (part, all) => (all ? 100 * part / all : 0).toFixed(2) + ' %';
// "23.000000001" plus nanoseconds, exactly: such numbers have more digits than a double.
function moment(ns) {
  const [seconds, fraction] = data.span.first.split('.');
  const time = BigInt(seconds) * 1000000000n + BigInt(fraction) + BigInt(Math.round(ns));
  return time / 1000000000n + '.' + String(time % 1000000000n).padStart(9, '0');
}
const binTime = (bin) => moment(data.span.length_ns * bin / data.density.bins);
const say = (text) => { document.getElementById('status').textContent = text; };

function section(id, title, ...children) {
  const heading = el('h2', {id: id + '-title', text: title});
  const part = el('section', {id, 'aria-labelledby': id + '-title'}, heading, ...children);
  document.getElementById('content').append(part);
  document.getElementById('contents').append(el('a', {href: '#' + id, text: title}));
  return part;
}
// A command to paste: the words and a button that copies them.
function command(words) {
  const text = 'ptdecode ' + words + ' ' + data.input;
  const button = el('button', {type: 'button', class: 'copy', text: 'Copy', 'aria-label': 'Copy ' + text, onclick: () => {
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => say('copied'), () => say('the browser does not allow copying'));
    else say('the browser does not allow copying');
  }});
  return el('span', {class: 'command'}, el('code', {text}), button);
}
function facts(pairs) {
  const list = el('dl', {class: 'facts'});
  for (const [name, value] of pairs) {
    if (value === '' || value === undefined || value === null) continue;
    list.append(el('dt', {text: name}), value instanceof Node ? el('dd', {}, value) : el('dd', {text: value}));
  }
  return list;
}
// Columns: {title, value(row), text(row), node(row), number, short, wide, place}. Sorting is offered if `sorts`; `sorted`: the column by which the data
// is sorted already, downwards.
function table(caption, columns, rows, options) {
  options = options || {};
  const body = el('tbody'), heads = [];
  const lines = rows.map((row, index) => {
    const line = el('tr', {'data-row': index});
    columns.forEach((column, at) => {
      const text = column.text ? column.text(row, index) : String(column.value(row, index));
      const cell = el(at === (options.header || 0) ? 'th' : 'td', {class: column.number ? 'number' : column.short ? 'short' : column.wide ? 'wide' : column.place ? 'place' : false});
      if (at === (options.header || 0)) cell.setAttribute('scope', 'row');
      cell.append(column.node ? column.node(row, index) : text);
      line.append(cell);
    });
    return {line, row, index};
  });
  let sorted = options.sorted === undefined ? -1 : options.sorted, down = true;
  function sort(at) {
    const column = columns[at];
    down = sorted === at ? !down : Boolean(column.number);
    sorted = at;
    const order = [...lines].sort((a, b) => {
      const x = column.value(a.row, a.index), y = column.value(b.row, b.index);
      const less = typeof x === 'number' ? x - y : String(x) < String(y) ? -1 : String(x) > String(y) ? 1 : 0;
      return (down ? -less : less) || a.index - b.index;
    });
    heads.forEach((head, i) => head.setAttribute('aria-sort', i !== at ? 'none' : down ? 'descending' : 'ascending'));
    body.append(...order.map((each) => each.line));
    say(caption + ', sorted by ' + column.title + (down ? ', descending' : ', ascending'));
  }
  columns.forEach((column, at) => {
    const head = el('th', {scope: 'col', class: column.number ? 'number' : false});
    if (options.sorts) {
      head.setAttribute('aria-sort', at === sorted ? 'descending' : 'none');
      head.append(el('button', {type: 'button', class: 'sort', text: column.title, onclick: () => sort(at)}));
    } else {
      head.append(column.title);
    }
    heads.push(head);
  });
  body.append(...lines.map((each) => each.line));
  const made = el('table', {}, el('caption', {text: caption}), el('thead', {}, el('tr', {}, ...heads)), body);
  return {element: el('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption}, made), lines};
}
// A search field that hides the lines of a table without the words. `also`: a further condition on a row, for apply() after it changed.
function search(label, made, textOf, also) {
  const result = el('output', {text: ''});
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const {line, row} of made.lines) {
      const text = textOf(row).toLowerCase(), hit = words.every((word) => text.includes(word)) && (!also || also(row));
      line.hidden = !hit;
      left += hit;
    }
    result.textContent = words.length || left < made.lines.length ? left + ' of ' + made.lines.length : '';
  };
  const field = el('input', {type: 'search', autocomplete: 'off', spellcheck: 'false', oninput: apply});
  return {element: el('p', {class: 'controls'}, el('label', {}, label + ' ', field), ' ', result), field, apply};
}
const details = (title, ...children) => el('details', {}, el('summary', {text: title}), ...children);
