import type { z } from '@hono/zod-openapi';
import type { ProblemCode } from '../problem/problem-kinds.js';

/** The statuses of successful answers, and of a readiness check that says no. */
export type AnswerStatus = 200 | 201 | 202 | 503;

/** One method of one path: what it takes, what it answers, and how it is documented. */
export interface Operation<
  Path extends z.ZodObject = z.ZodObject,
  Query extends z.ZodObject = z.ZodObject,
  Body extends z.ZodObject = z.ZodObject,
  Answer extends z.ZodType = z.ZodType,
> {
  readonly method: 'get' | 'post';
  /** With parameters in braces, as OpenAPI writes them. */
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly pathFields?: Path;
  readonly query?: Query;
  readonly body?: Body;
  /** Whether no body at all is as good as `{}`. */
  readonly bodyOptional?: boolean;
  /** Describes what is answered when no problem is, by status. */
  readonly answers: Readonly<Partial<Record<AnswerStatus, string>>>;
  readonly answer: Answer;
  /** The problems it can have beside those that come with its parts. */
  readonly problems: readonly ProblemCode[];
}
