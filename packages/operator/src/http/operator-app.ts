import { OpenAPIHono } from '@hono/zod-openapi';
import { bodyLimit } from 'hono/body-limit';

import type { Operator } from '../operator.js';
import { requireToken } from './access.js';
import { type ConsoleFiles, serveConsole } from './console-files.js';
import { liveOperation } from './live.js';
import { Operations } from './operation.js';
import { applicationOperations, changeOperations, readOperations } from './operations.js';
import { RequestProblem, problemOf, problemResponse } from './problems.js';

const bodyBytesMax = 65_536;

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
export function operatorApp(operator: Operator, options: OperatorAppOptions): OpenAPIHono {
  const { token, readOnly = true, console: files, onError } = options;
  const app = new OpenAPIHono();
  app.use(async (context, next) => {
    await next();
    context.header('cache-control', 'no-store');
    context.header('x-content-type-options', 'nosniff');
  });
  if (files !== undefined) serveConsole(app, files);
  app.use(requireToken(token));
  app.use(
    bodyLimit({
      maxSize: bodyBytesMax,
      onError: () => {
        throw new RequestProblem(413, 'body-too-large', `Send at most ${bodyBytesMax} bytes`);
      },
    }),
  );
  const operations = new Operations(app, readOnly);
  readOperations(operations, operator);
  applicationOperations(operations, operator);
  changeOperations(operations, operator);
  liveOperation(app, operator, options);
  app.openAPIRegistry.registerComponent('securitySchemes', 'token', { type: 'http', scheme: 'bearer' });
  app.doc31('/openapi.json', {
    openapi: '3.1.0',
    info: {
      title: 'Operator',
      version: '0.1.0',
      description:
        'What operators ask and change, over all databases. Databases that did not answer are listed in `failures`.',
    },
  });
  app.notFound(() =>
    problemResponse(new RequestProblem(404, 'not-found', '/openapi.json lists what there is')),
  );
  app.onError((error) => {
    const problem = problemOf(error);
    if (problem.status >= 500) onError?.(error);
    return problemResponse(problem);
  });
  return app;
}
