import { ConfigurationException, HandlerNamesException, NoUsableShardException } from '@framework/core';
import type { ServiceSettings } from '../configuration/service-settings.js';

/** Says why the service does not start and what to do; `undefined` for an error that only its stack can explain. */
export function startFault(error: unknown, settings: ServiceSettings | undefined): string | undefined {
  if (error instanceof ConfigurationException || error instanceof NoUsableShardException) {
    const file = settings?.configFile;
    return file === undefined ? error.message : `WALLET_CONFIG=${file}\n${error.message}`;
  }
  if (error instanceof HandlerNamesException) {
    // Only where a version gave the handler a new name without listing the old one is there one too many.
    const orRetire = '\nOr retire those that are not to go on, with DeliveryOperator.retire';
    return `${error.message}${error.other === undefined ? orRetire : ''}`;
  }
  if (!(error instanceof Error)) return undefined;
  // Its class is in a module that only embedded databases load.
  if (error.name === 'PostgresServerError') return error.message;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (settings === undefined || (syscall !== 'listen' && syscall !== 'getaddrinfo')) return undefined;
  if (code === 'EADDRINUSE') {
    return `Port ${settings.port} of ${settings.host} is in use: stop what listens there, or choose another one, such as PORT=${settings.port === 8081 ? 8082 : 8081}`;
  }
  return `The service cannot listen on port ${settings.port} of ${settings.host} (${code}): correct PORT or HOST`;
}
