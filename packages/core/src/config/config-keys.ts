import { ConfigurationError, type ConfigurationIssue } from './configuration-errors.js';

/**
 * Rewrites all keys of a configuration tree to camelCase, so that both spellings of a key mean the same.
 *
 * @throws ConfigurationError `invalid-configuration` when a section has a key in both spellings, or contains itself
 */
export function camelCaseKeys(tree: unknown): unknown {
  const faults: ConfigurationIssue[] = [];
  const rewritten = rewrite(tree, { path: [], sections: [] }, faults);
  if (faults.length > 0) throw new ConfigurationError(faults);
  return rewritten;
}

/**
 * Formats a path of camelCase keys and list positions as people write it: `groups[0].jdbc-url`. A key that is not a
 * plain name, such as `password:s3cret` with its missing space, is cut off after its first letters.
 */
export function kebabCasePath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    const key = kebabCase(nameIn(String(part)));
    return text === '' ? key : `${text}.${key}`;
  }, '');
}

/** A position in the tree: its path, and the sections that contain it. */
interface Place {
  readonly path: readonly PropertyKey[];
  readonly sections: readonly object[];
}

function rewrite(tree: unknown, place: Place, faults: ConfigurationIssue[]): unknown {
  if (typeof tree !== 'object' || tree === null) return tree;
  // YAML aliases can create a tree that contains itself.
  if (place.sections.includes(tree)) {
    faults.push({ path: kebabCasePath(place.path), message: 'contains itself' });
    return undefined;
  }
  const sections = [...place.sections, tree];
  const at = (key: PropertyKey): Place => ({ path: [...place.path, key], sections });
  if (Array.isArray(tree)) return tree.map((item, index) => rewrite(item, at(index), faults));
  const rewritten = new Map<string, unknown>();
  for (const [key, value] of Object.entries(tree)) {
    const name = camelCase(key);
    const here = at(name);
    if (rewritten.has(name)) {
      faults.push({
        path: kebabCasePath(here.path),
        message: 'occurs twice here, in kebab-case and in camelCase: keep one',
      });
    }
    rewritten.set(name, rewrite(value, here, faults));
  }
  return Object.fromEntries(rewritten);
}

function nameIn(key: string): string {
  return key.replace(/[^\p{L}\p{N}_-].*/su, '…');
}

function camelCase(key: string): string {
  return key.replace(/-([a-z0-9])/g, (_match, letter: string) => letter.toUpperCase());
}

function kebabCase(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** Shorter names would be contained in too many others. */
const lettersMin = 3;

/** The faults for keys that a section does not know. */
export function unknownKeys(
  section: readonly PropertyKey[],
  keys: readonly string[],
): readonly ConfigurationIssue[] {
  return keys.map((key) => ({ path: kebabCasePath([...section, key]), message: 'is not a known key' }));
}

/**
 * Like {@link unknownKeys}, for a section with a password, which may have been written in place of a key. Only keys
 * that resemble a known one are shown.
 */
export function unknownKeysBesidePassword(
  section: readonly PropertyKey[],
  keys: readonly string[],
  known: readonly string[],
): readonly ConfigurationIssue[] {
  const { shown = [], hidden = [] } = Object.groupBy(keys, (key) =>
    known.some((name) => resembles(key, name)) ? 'shown' : 'hidden',
  );
  const faults = unknownKeys(section, shown);
  if (hidden.length === 0) return faults;
  const what = hidden.length === 1 ? 'an unknown key' : `${hidden.length} unknown keys`;
  const names = known.map((name) => kebabCasePath([name])).join(', ');
  const message = `has ${what}, hidden because it could contain a password; the known keys are ${names}`;
  return [...faults, { path: kebabCasePath(section), message }];
}

/** Whether a key is a known one with letters missing, or with one too many. */
function resembles(key: string, known: string): boolean {
  const [one, other] = [lettersOf(key), lettersOf(known)];
  if (one.length < lettersMin) return false;
  return isSpelledBy(one, other) || (one.length === other.length + 1 && isSpelledBy(other, one));
}

function lettersOf(key: string): string {
  return key
    .replace(/[^\w-].*/s, '')
    .toLowerCase()
    .replaceAll(/[-_]/g, '');
}

/** Whether a text remains when some characters of another one are left out. */
function isSpelledBy(text: string, other: string): boolean {
  let found = 0;
  for (const character of other) if (character === text[found]) found++;
  return found === text.length;
}

/** The known name that a misspelt one most likely means; empty when there is none. */
export function nearestName(name: string, known: Iterable<string>): string {
  let best = { name: '', distance: Infinity };
  for (const each of known) {
    const distance = editDistance(name.toLowerCase(), each.toLowerCase());
    if (distance < best.distance) best = { name: each, distance };
  }
  return best.name;
}

/**
 * The edit distance: how many characters must be inserted, deleted or replaced.
 *
 * @see https://en.wikipedia.org/wiki/Wagner%E2%80%93Fischer_algorithm
 */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_unused, index) => index);
  for (const character of one) {
    const next = [(row[0] ?? 0) + 1];
    for (let index = 0; index < other.length; index++) {
      const replaced = (row[index] ?? 0) + (character === other[index] ? 0 : 1);
      next.push(Math.min(replaced, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
