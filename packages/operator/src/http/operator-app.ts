import { HttpApi } from '@framework/http';
import { type HonoEnv, honoApp } from '@framework/http/hono';
import { Hono } from 'hono';

import type { Operator } from '../operator.js';
import { TokenAuthentication } from './access.js';
import { type ConsoleFiles, serveConsole } from './console-files.js';
import { liveRoute } from './live.js';
import { operatorProblems } from './problems.js';
import { applicationRoutes, changeRoutes, readRoutes } from './routes.js';

/** Who may do what over HTTP. */
export interface OperatorAppOptions {
  /** What every request must carry, at least 32 characters. */
  readonly token: string;
  /** Whether changes are refused, dry runs included. Default true. */
  readonly readOnly?: boolean | undefined;
  /**
   * Reads the files of a page that is served under `/console/`, such as `readConsole` of `@framework/console`; called for the first
   * request. Its files need no token. Default: there is no page.
   */
  readonly console?: (() => Promise<ConsoleFiles>) | undefined;
  /** Ends the streams of `/live`, so that a server can close. Default: their clients end them. */
  readonly closing?: AbortSignal | undefined;
  /** Called with errors that are answered with 500 or 503, whose messages are not shown. Default: nothing. */
  readonly onError?: (error: unknown) => void;
}

/**
 * The functions of an operator over HTTP, with their OpenAPI document at `/openapi.json`. Every request needs the token, apart from
 * those for the files of a console.
 *
 * Answers contain params and payloads of the log, but no address, password or driver's message of a database. Serve it where only
 * operators can reach it.
 *
 * @throws ConfigurationError `invalid-configuration` when the token is too short, or no header can carry it
 */
export function operatorApp(operator: Operator, options: OperatorAppOptions): Hono<HonoEnv> {
  const { token, readOnly = true, console: files, onError } = options;
  const api = new HttpApi({
    name: 'operator',
    info,
    problems: operatorProblems,
    authentication: new TokenAuthentication(token),
    isPrivate: true,
    routes: [
      ...readRoutes(operator, readOnly),
      ...applicationRoutes(operator),
      ...changeRoutes(operator, readOnly),
      liveRoute(operator, options),
    ],
    log: {
      answered: () => undefined,
      problem: (_exchange, { status }, error) => {
        if (status >= 500) onError?.(error);
      },
    },
  });
  const app = new Hono<HonoEnv>();
  app.onError((error) => {
    onError?.(error);
    return api.refuse(error).response;
  });
  if (files !== undefined) serveConsole(app, files);
  return honoApp(api, { app });
}

const info = {
  title: 'Operator',
  version: '0.1.0',
  description:
    'What operators read and change, over all databases. Databases that did not answer are listed in `failures`.',
};
