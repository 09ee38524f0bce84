import { useEffect, useState } from 'preact/hooks';

import { ApiError, ask } from './session.js';

/** A question to the API, as far as it is answered. */
export interface Asked<Answer> {
  /** The answer; while the next one is awaited, the one before, so that the screen does not jump. */
  readonly answer: Answer | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  readonly askAgain: () => void;
}

type Query = Readonly<Record<string, string | number | undefined>>;

interface State<Answer> {
  readonly path?: string;
  readonly answer?: Answer;
  readonly error?: ApiError;
  readonly isLoading: boolean;
}

/**
 * Asks the API whenever the question changes, and gives up the one before.
 *
 * @param path `undefined` asks nothing
 * @param repeat asks again whenever it changes, without showing that something is loaded
 */
export function useAnswer<Answer>(
  path: string | undefined,
  query: Query = {},
  repeat?: unknown,
): Asked<Answer> {
  const [state, setState] = useState<State<Answer>>({ isLoading: path !== undefined });
  const [times, setTimes] = useState(0);
  const question = JSON.stringify(query);
  useEffect(() => {
    if (path === undefined) return setState({ isLoading: false });
    const stop = new AbortController();
    setState((before) => (before.path === path ? { ...before, isLoading: true } : { path, isLoading: true }));
    ask<Answer>(path, query, stop.signal).then(
      (answer) => setState({ path, answer, isLoading: false }),
      (error: unknown) => {
        if (!stop.signal.aborted) setState({ path, error: asApiError(error), isLoading: false });
      },
    );
    return () => stop.abort();
  }, [path, question, times, repeat]);
  return {
    answer: state.answer,
    error: state.error,
    isLoading: state.isLoading,
    askAgain: () => setTimes((before) => before + 1),
  };
}

export function asApiError(error: unknown): ApiError {
  return error instanceof ApiError
    ? error
    : new ApiError(0, 'page', `The page has a mistake: ${String(error)}`);
}
