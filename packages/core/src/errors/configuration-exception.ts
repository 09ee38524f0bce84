import { FrameworkException } from './framework-exception.js';

/** One fault of a configuration: where it is, in kebab-case, and what to do about it. */
export interface ConfigurationFault {
  /** Such as `framework.sharding.groups[0].members[1].configs.primary-config.jdbc-url`. */
  readonly path: string;
  readonly message: string;
}

/** The configuration cannot be used; every fault is named by its path, and no value is shown that could be secret. */
export class ConfigurationException extends FrameworkException {
  /** All faults that were found, not only the first. */
  readonly faults: readonly ConfigurationFault[];

  constructor(faults: readonly ConfigurationFault[], options?: { readonly cause?: unknown }) {
    const lines = faults.map(({ path, message }) => `  ${path}: ${message}`);
    super('invalid-configuration', `The configuration cannot be used:\n${lines.join('\n')}`, options);
    this.faults = faults;
  }
}
