import { InvariantViolationError } from './errors/framework-error.js';

const oldest = { major: 22, minor: 18 };

/** Refuses a Node version older than `engines` requires, which would otherwise fail later at a missing feature. */
export function assertSupportedNode(): void {
  const { node } = process.versions;
  const [major = 0, minor = 0] = node.split('.').map(Number);
  if (major > oldest.major || (major === oldest.major && minor >= oldest.minor)) return;
  throw new InvariantViolationError(
    `Node ${node} is too old for @framework/core: install Node ${oldest.major}.${oldest.minor} or newer`,
  );
}
