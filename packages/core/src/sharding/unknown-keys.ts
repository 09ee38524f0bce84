import type { ConfigurationFault } from '../errors/configuration-exception.js';
import { kebabCasePath } from './configuration-keys.js';

/** Shorter names are contained in too many others. */
const lettersMin = 3;

/** The faults of keys that a section does not know. */
export function unknownKeys(
  section: readonly PropertyKey[],
  keys: readonly string[],
): readonly ConfigurationFault[] {
  return keys.map((key) => ({ path: kebabCasePath([...section, key]), message: 'is not a known key' }));
}

/**
 * The same for a section that has a password, which may stand in the place of a key: only a key that resembles a known one is
 * shown.
 */
export function unknownKeysBesidePassword(
  section: readonly PropertyKey[],
  keys: readonly string[],
  known: readonly string[],
): readonly ConfigurationFault[] {
  const { shown = [], hidden = [] } = Object.groupBy(keys, (key) =>
    known.some((name) => resembles(key, name)) ? 'shown' : 'hidden',
  );
  const faults = unknownKeys(section, shown);
  if (hidden.length === 0) return faults;
  const what = hidden.length === 1 ? 'an unknown key' : `${hidden.length} unknown keys`;
  const names = known.map((name) => kebabCasePath([name])).join(', ');
  const message = `has ${what}, not shown because a password may stand there; the known ones are ${names}`;
  return [...faults, { path: kebabCasePath(section), message }];
}

/** Whether a key is a known one with letters left out, or with one too many. */
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

/** Whether a text is left when some characters of another one are left out. */
function isSpelledBy(text: string, other: string): boolean {
  let found = 0;
  for (const character of other) if (character === text[found]) found++;
  return found === text.length;
}
