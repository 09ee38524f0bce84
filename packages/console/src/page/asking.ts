import { useEffect, useRef, useState } from 'preact/hooks';

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
 * @param repeat asks again whenever it changes, without showing that something is loaded; an answer that takes longer is awaited first
 */
export function useAnswer<Answer>(
  path: string | undefined,
  query: Query = {},
  repeat?: unknown,
): Asked<Answer> {
  const [state, setState] = useState<State<Answer>>({ isLoading: path !== undefined });
  const [times, setTimes] = useState(0);
  const question = JSON.stringify(query);
  /** Stops the question whose answer is awaited; `undefined` if there is none. */
  const asking = useRef<AbortController>(undefined);
  const isRepeatWanted = useRef(false);
  const begin = (asked: string): void => {
    const stop = new AbortController();
    asking.current = stop;
    isRepeatWanted.current = false;
    const end = (outcome: Partial<State<Answer>>): void => {
      if (stop.signal.aborted) return;
      asking.current = undefined;
      setState({ path: asked, ...outcome, isLoading: false });
      if (isRepeatWanted.current) begin(asked);
    };
    ask<Answer>(asked, query, stop.signal).then(
      (answer) => end({ answer }),
      (error: unknown) => end({ error: asApiError(error) }),
    );
  };
  useEffect(() => {
    if (path === undefined) return setState({ isLoading: false });
    setState((before) => (before.path === path ? { ...before, isLoading: true } : { path, isLoading: true }));
    begin(path);
    return () => {
      asking.current?.abort();
      asking.current = undefined;
    };
  }, [path, question, times]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else if (asking.current !== undefined) isRepeatWanted.current = true;
    else if (path !== undefined) begin(path);
  }, [repeat]);
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
