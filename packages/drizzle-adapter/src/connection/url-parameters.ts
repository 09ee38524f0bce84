import { ConfigurationException, type DatabaseConfig } from '@framework/core';

/** What a URL may say after its `?`; of some parameters the values, where `pg` would take any other one for none. */
export const urlParameters: ReadonlyMap<string, readonly string[] | undefined> = new Map([
  ['user', undefined],
  ['password', undefined],
  ['host', undefined],
  ['port', undefined],
  ['sslmode', ['disable', 'prefer', 'require', 'verify-ca', 'verify-full', 'no-verify']],
  ['ssl', ['true', 'false', '1', '0']],
  ['sslrootcert', undefined],
  ['sslcert', undefined],
  ['sslkey', undefined],
  ['sslnegotiation', ['postgres', 'direct']],
  ['uselibpqcompat', ['true', 'false']],
  ['options', undefined],
  ['lock_timeout', undefined],
]);

const namesShownMax = 63;

/**
 * Refuses parameters of a URL that `pg` would ignore: a connection must not be in plain text because of a typing error.
 *
 * @throws ConfigurationException `invalid-configuration` with every fault; values are never shown
 */
export function assertUrlParameters({ address, path }: DatabaseConfig): void {
  const { searchParams, hash } = new URL(address);
  const messages = [...new Set(searchParams.keys())].flatMap(
    (name) => faultOf(name, searchParams.getAll(name)) ?? [],
  );
  if (hash !== '') messages.push('has a #, behind which all would be ignored: write %23 where it is meant');
  if (messages.length === 0) return;
  throw new ConfigurationException(messages.map((message) => ({ path: `${path}.jdbc-url`, message })));
}

function faultOf(name: string, [value = '', ...others]: readonly string[]): string | undefined {
  const values = urlParameters.get(name);
  if (!urlParameters.has(name)) {
    if (value === '') return 'has an unknown parameter without a value: write & in a password as %26';
    const shown = name.slice(0, namesShownMax);
    return `has the parameter ${shown}, which would be ignored: the nearest known one is ${nearest(shown)}; correct it or leave it out`;
  }
  if (others.length > 0) return `has the parameter ${name} twice: keep one`;
  if (values !== undefined && !values.includes(value))
    return `has a value of ${name} that is none of ${values.join(', ')}`;
  if (name === 'host' && value.includes(','))
    return 'has several hosts: name one, such as that of a proxy before them';
  return value === '' ? `has the parameter ${name} with no value: give one or leave it out` : undefined;
}

function nearest(name: string): string {
  const distances = [...urlParameters.keys()].map((known) => ({
    known,
    distance: editDistance(name.toLowerCase(), known),
  }));
  return distances.reduce((best, each) => (each.distance < best.distance ? each : best)).known;
}

/**
 * How many characters are to be inserted, deleted or replaced.
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
