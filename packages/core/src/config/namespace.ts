import { ConfigurationError } from '../errors/configuration-errors.js';

const name = '[A-Za-z_][A-Za-z0-9_-]*';

/** What every namespace looks like. */
export const namespacePattern: RegExp = new RegExp(`^${name}(\\.${name})*$`);
/** How many characters it has at most: it stands in the index of idempotency keys. */
export const namespaceMax = 255;
/** What is wrong with one that looks otherwise. */
export const namespaceIssue: string =
  `is not a list of names with dots between, of ${namespaceMax} characters at most: each name is of letters, digits, _ and -, ` +
  'and begins with a letter or _';

/** @throws ConfigurationError `invalid-configuration` for what the configuration would refuse, too */
export function checkNamespace(namespace: string): void {
  if (namespacePattern.test(namespace) && namespace.length <= namespaceMax) return;
  const message = `'${namespace.slice(0, 64)}' ${namespaceIssue}`;
  throw new ConfigurationError([{ path: 'namespace', message }]);
}
