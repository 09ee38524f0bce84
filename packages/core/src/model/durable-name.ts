import { InvariantViolation } from '../errors/invariant-violation.js';
import { isStorableText } from './storable-text.js';

/**
 * The name under which the log knows a class, for good: the one that it declares, else its own.
 *
 * @param declared how a class declares a name, for the message
 * @throws InvariantViolation `invariant-violation` when a bundler has renamed the class: the log would keep that name; or when
 * the declared one is no text of 1 to 255 characters
 */
export function durableName(
  named: { readonly name: string },
  name: string | undefined,
  declared: string,
): string {
  if (name !== undefined) return checkedName(name, named, declared);
  if (/^[A-Z]/.test(named.name) && named.name.length > 1) return named.name;
  throw new InvariantViolation(
    `The class name '${named.name}' looks renamed by a bundler: declare ${declared}, or let the bundler keep names`,
  );
}

const charactersMax = 255;

/** The log finds models by their names: they must fit into an index. */
function checkedName(name: string, named: { readonly name: string }, declared: string): string {
  if (!isStorableText(name) || name.length === 0 || name.length > charactersMax) {
    throw new InvariantViolation(
      `${named.name} declares a name that is no text of 1 to ${charactersMax} characters: correct ${declared}`,
    );
  }
  return name;
}
