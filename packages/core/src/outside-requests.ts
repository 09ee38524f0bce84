import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Runs work outside the async context of any request: what serves many requests must not run, or live on, in the context
 * of the one that happened to start it.
 *
 * The context is that in which this module was loaded; load it before the first request is served.
 */
export const outsideRequests: <Result>(work: () => Result) => Result = AsyncLocalStorage.snapshot();
