import { ConfigurationError, InvariantViolationError } from '@framework/core';
import { HandlerNamesError, NoUsableShardError } from '@framework/core/adapter';

import type { ServiceSettings } from '../settings/service-settings.js';

/** Where something was to listen. */
interface ListenAddress {
  readonly address: string;
  readonly port: number;
  /** The name that cannot be found. */
  readonly hostname: string;
}

/**
 * Explains why the service does not start and what to do; `undefined` for an error that only its stack can explain.
 *
 * @param variables the beginning of the variables of the process, such as `WALLET`
 */
export function startError(
  error: unknown,
  variables: string,
  settings?: Pick<ServiceSettings, 'configFile' | 'host' | 'port'>,
): string | undefined {
  if (error instanceof ConfigurationError || error instanceof NoUsableShardError) {
    const file = settings?.configFile;
    return file === undefined ? error.message : `${variables}_CONFIG=${file}\n${error.message}`;
  }
  if (error instanceof HandlerNamesError) {
    // Retiring helps only if a release renamed the handler without listing the old name as an alias.
    const orRetire = '\nOr retire the ids that are not needed any more, with DeliveryOperator.retire';
    return `${error.message}${error.other === undefined ? orRetire : ''}`;
  }
  if (!(error instanceof Error)) return undefined;
  if (error instanceof InvariantViolationError) return error.message;
  // Checked by name, because its class is in a module that only embedded databases load.
  if (error.name === 'PostgresServerError') return error.message;
  const { code, syscall, port, address, hostname } = error as NodeJS.ErrnoException & Partial<ListenAddress>;
  if (settings === undefined || (syscall !== 'listen' && syscall !== 'getaddrinfo')) return undefined;
  if (hostname !== undefined && hostname !== settings.host)
    return `The host ${hostname} cannot be found (${code}): correct framework.metrics.host, framework.operator.host, or what else names it`;
  if (port !== undefined && port !== settings.port)
    return `Port ${port} of ${address} cannot be listened on (${code}): stop the process that listens there, or correct framework.metrics or framework.operator`;
  if (code === 'EADDRINUSE') {
    return `Port ${settings.port} of ${settings.host} is in use: stop the process that listens there, or choose another port, such as PORT=${settings.port === 8081 ? 8082 : 8081}`;
  }
  return `The service cannot listen on port ${settings.port} of ${settings.host} (${code}): correct PORT or HOST`;
}
