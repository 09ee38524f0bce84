/**
 * Waits for an answer for a limited time; the answer itself goes on.
 *
 * @param tooLate makes the error of the time that has passed
 */
export function withinMs<T>(answer: Promise<T>, waitMs: number, tooLate: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(tooLate()), waitMs);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
