import { InvariantViolation } from '../errors/invariant-violation.js';

/**
 * The name under which the log knows a class, for good: the one that it declares, else its own.
 *
 * @param declared how a class declares a name, for the message
 * @throws InvariantViolation `invariant-violation` when a bundler has renamed the class: the log would keep that name
 */
export function durableName(
  named: { readonly name: string },
  name: string | undefined,
  declared: string,
): string {
  if (name !== undefined) return name;
  if (/^[A-Z]/.test(named.name) && named.name.length > 1) return named.name;
  throw new InvariantViolation(
    `The class name '${named.name}' looks renamed by a bundler: declare ${declared}, or let the bundler keep names`,
  );
}
