import { useEffect, useRef, useState } from 'preact/hooks';

import { ApiError, ask } from './session.js';

/** A query of the API, with its answer once it has arrived. */
export interface Query<Answer> {
  /** The answer; while the next one is awaited, the one before, so that the screen does not jump. */
  readonly answer: Answer | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  readonly refetch: () => void;
}

type QueryParams = Readonly<Record<string, string | number | undefined>>;

interface State<Answer> {
  readonly path?: string;
  readonly answer?: Answer;
  readonly error?: ApiError;
  readonly isLoading: boolean;
}

/**
 * Queries the API whenever the query changes, and aborts the one before.
 *
 * @param path `undefined` for no query
 * @param repeat repeats the query whenever it changes, without a sign of loading; an answer that takes longer is awaited first
 */
export function useAnswer<Answer>(
  path: string | undefined,
  query: QueryParams = {},
  repeat?: unknown,
): Query<Answer> {
  const [state, setState] = useState<State<Answer>>({ isLoading: path !== undefined });
  const [times, setTimes] = useState(0);
  const queryText = JSON.stringify(query);
  /** Aborts the running query; `undefined` if there is none. */
  const running = useRef<AbortController>(undefined);
  const isRepeatWanted = useRef(false);
  const begin = (asked: string): void => {
    const stop = new AbortController();
    running.current = stop;
    isRepeatWanted.current = false;
    const end = (outcome: Partial<State<Answer>>): void => {
      if (stop.signal.aborted) return;
      running.current = undefined;
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
      running.current?.abort();
      running.current = undefined;
    };
  }, [path, queryText, times]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else if (running.current !== undefined) isRepeatWanted.current = true;
    else if (path !== undefined) begin(path);
  }, [repeat]);
  return {
    answer: state.answer,
    error: state.error,
    isLoading: state.isLoading,
    refetch: () => setTimes((before) => before + 1),
  };
}

export function asApiError(error: unknown): ApiError {
  return error instanceof ApiError
    ? error
    : new ApiError(0, 'page', `The page has a mistake: ${String(error)}`);
}
