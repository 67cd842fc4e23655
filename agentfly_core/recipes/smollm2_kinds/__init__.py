"""Questions such as: which of three words is an animal?"""
