import { ConfigurationException, type ConfigurationFault } from '../errors/configuration-exception.js';

/**
 * Rewrites all keys of a configuration tree in camelCase, so that kebab-case and camelCase are the same.
 *
 * @throws ConfigurationException `invalid-configuration` when a key stands there in both ways
 */
export function camelCaseKeys(tree: unknown): unknown {
  const faults: ConfigurationFault[] = [];
  const rewritten = rewrite(tree, [], faults);
  if (faults.length > 0) throw new ConfigurationException(faults);
  return rewritten;
}

/** A path of camelCase keys and list positions, as people write it: `groups[0].jdbc-url`. */
export function kebabCasePath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    const key = kebabCase(String(part));
    return text === '' ? key : `${text}.${key}`;
  }, '');
}

function rewrite(tree: unknown, path: readonly PropertyKey[], faults: ConfigurationFault[]): unknown {
  if (Array.isArray(tree)) return tree.map((item, index) => rewrite(item, [...path, index], faults));
  if (typeof tree !== 'object' || tree === null) return tree;
  const rewritten = new Map<string, unknown>();
  for (const [key, value] of Object.entries(tree)) {
    const name = camelCase(key);
    const here = [...path, name];
    if (rewritten.has(name)) {
      faults.push({
        path: kebabCasePath(here),
        message: 'stands here twice, in kebab-case and in camelCase; keep one',
      });
    }
    rewritten.set(name, rewrite(value, here, faults));
  }
  return Object.fromEntries(rewritten);
}

function camelCase(key: string): string {
  return key.replace(/-([a-z0-9])/g, (_match, letter: string) => letter.toUpperCase());
}

function kebabCase(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
