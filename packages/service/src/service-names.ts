import { ConfigurationError } from '@framework/core';

import type { ServiceDescription } from './service-definition.js';

/** The names that come from that of an application. */
export interface ServiceNames {
  /** In logs, problems, tokens and sessions of databases, such as `wallet-service`. */
  readonly service: string;
  /** The beginning of the variables of the process, such as `WALLET` in `WALLET_CONFIG`. */
  readonly variables: string;
  /** The beginning of the roles of databases, such as `wallet`. */
  readonly roles: string;
  /** Of a process without a configuration, such as `com.example.wallet`. */
  readonly namespace: string;
  /** The stream, exchange or topic that a first relay creates, such as `wallet-events`. */
  readonly stream: string;
}

/** @throws ConfigurationError `invalid-configuration` when the name of the application is none */
export function namesOf({ name }: Pick<ServiceDescription, 'name'>): ServiceNames {
  if (!/^(?!pg|framework$)[a-z][a-z\d-]{0,38}$/.test(name) || name.endsWith('-')) {
    const message =
      'must be up to 39 lower-case letters, digits and "-", such as wallet, and neither begin with pg nor be framework';
    throw new ConfigurationError([{ path: 'name', message }]);
  }
  const underscored = name.replaceAll('-', '_');
  return {
    service: `${name}-service`,
    variables: underscored.toUpperCase(),
    roles: underscored,
    namespace: `com.example.${name}`,
    stream: `${name}-events`,
  };
}
